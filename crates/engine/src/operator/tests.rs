//! The file as an operator changes it.

use super::*;
use std::os::unix::fs::PermissionsExt;

struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        let dir = std::env::temp_dir().join(format!("workroom-operator-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        File(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.join("policy.toml")
    }

    /// As an editor saves it: another file takes the name.
    fn write(&self, text: &str) {
        let new = self.0.join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn base() -> Policy {
    Policy { memory: Some(2 << 30), pids: Some(1024), ..Policy::default() }
}

#[test]
fn changes_are_taken_up_and_a_broken_file_changes_nothing() {
    let file = File::new("changes");
    let operator = Operator::open(file.path(), base()).unwrap();
    assert_eq!(operator.current().defaults, base());
    assert!(!operator.status().exists);

    file.write("[defaults]\nmemory = \"1G\"\n[ceiling]\npids = 10\n[users.ann.ceiling]\npids = 20\n");
    let now = operator.current();
    assert_eq!((now.defaults.memory, now.defaults.pids), (Some(1 << 30), Some(1024)));
    assert_eq!(now.ceiling_of("bob").unwrap().pids, Some(10));
    assert_eq!(now.ceiling_of("ann").unwrap().pids, Some(20));
    assert_eq!(now.ceiling_of(ADMIN), None);

    for broken in ["[defaults", "[defaults]\nmemory = 1\n", "[ceiling]\nallow_missing = [\"moat\"]\n"] {
        file.write(broken);
        assert_eq!(operator.current(), now, "{broken:?}");
        let fault = operator.status().fault.expect("the fault is told");
        assert!(!fault.contains('\n'), "{fault}");
    }
    file.write("");
    assert_eq!(operator.current().defaults, base());
    assert_eq!(operator.status().fault, None);
    std::fs::remove_file(file.path()).unwrap();
    assert_eq!(operator.current().defaults, base());
}

#[test]
fn a_file_that_others_can_write_is_not_believed() {
    let file = File::new("trust");
    file.write("[defaults]\npids = 7\n");
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let Err(problem) = Operator::open(file.path(), base()) else { panic!("it was believed") };
    assert!(problem.detail.contains("someone else"), "{problem}");
}
