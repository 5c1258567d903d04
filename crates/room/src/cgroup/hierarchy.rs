//! Which cgroup hierarchies this machine has mounted, and where this process is in each.

use std::path::{Path, PathBuf};

/// The hierarchies, each as the directory of this process's own group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hierarchies {
    /// cgroup v2: its mount point and our group's directory below it.
    pub(crate) unified: Option<(PathBuf, PathBuf)>,
    /// cgroup v1: one directory for each controller.
    pub(crate) controllers: Vec<(String, PathBuf)>,
}

impl Hierarchies {
    /// Our v2 group and those above it, nearest first.
    pub(crate) fn unified_ancestors(&self) -> Vec<PathBuf> {
        let Some((root, own)) = &self.unified else { return Vec::new() };
        own.ancestors().take_while(|dir| dir.starts_with(root)).map(Path::to_owned).collect()
    }

    pub(crate) fn controller(&self, name: &str) -> Option<&Path> {
        self.controllers.iter().find(|(known, _)| known == name).map(|(_, dir)| dir.as_path())
    }
}

/// Reads the kernel's own account of it.
pub(crate) fn hierarchies() -> Hierarchies {
    let read = |file| super::read(rustix::fs::CWD, file).unwrap_or_default();
    let groups = read("/proc/self/cgroup");
    let usual = Path::new("/sys/fs/cgroup");
    let is_v2 = |fs: rustix::fs::StatFs| fs.f_type as u64 == CGROUP2_SUPER_MAGIC;
    if rustix::fs::statfs(usual).is_ok_and(is_v2)
        && let Some(found) = at_the_usual_place(&groups, usual)
    {
        return found;
    }
    parse(&groups, &read("/proc/self/mountinfo"))
}

const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// Where v2 is all there is and is where it always is, the list of all mounts need not be read: that takes longer the
/// more there are.
fn at_the_usual_place(groups: &str, root: &Path) -> Option<Hierarchies> {
    let own = root.join(groups.trim_end().strip_prefix("0::/")?);
    own.is_dir().then(|| Hierarchies { unified: Some((root.to_owned(), own)), controllers: Vec::new() })
}

fn parse(groups: &str, mounts: &str) -> Hierarchies {
    let mut found = Hierarchies::default();
    let own = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let wanted = if controller.is_empty() {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|name| name == controller)
            };
            wanted.then_some(path)
        })
    };
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ").filter(|(_, right)| right.starts_with("cgroup"))
        else {
            continue;
        };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (&[_, _, _, root, point, ..], &[kind, _, options, ..]) = (left.as_slice(), right.as_slice())
        else {
            continue;
        };
        let below = |path: &str| {
            let inside = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
            let dir = Path::new(point).join(inside);
            // A container may show a hierarchy whose paths are the host's; its root is ours then.
            if dir.is_dir() { dir } else { PathBuf::from(point) }
        };
        match kind {
            "cgroup2" if found.unified.is_none() => {
                if let Some(path) = own("") {
                    found.unified = Some((PathBuf::from(point), below(path)));
                }
            }
            "cgroup" => {
                for controller in options.split(',') {
                    if ["memory", "pids", "cpu"].contains(&controller)
                        && found.controller(controller).is_none()
                        && let Some(path) = own(controller)
                    {
                        found.controllers.push((controller.to_owned(), below(path)));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_with_v2_alone_is_taken_by_its_looks() {
        let found = at_the_usual_place("0::/self\n", Path::new("/proc")).expect("it is there");
        assert_eq!(found.unified, Some((PathBuf::from("/proc"), PathBuf::from("/proc/self"))));
        assert!(at_the_usual_place("0::/no-such-group\n", Path::new("/proc")).is_none());
        assert!(at_the_usual_place("2:memory:/\n0::/self\n", Path::new("/proc")).is_none());
    }

    #[test]
    fn hybrid_and_pure_machines_are_both_read() {
        let hybrid = parse(
            "2:memory:/\n1:cpu,cpuacct:/\n0::/\n",
            "35 31 0:32 / /proc rw - cgroup cgroup rw,memory\n\
             32 31 0:29 / /proc rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct\n\
             41 31 0:38 / /proc rw - cgroup2 cgroup2 rw\n",
        );
        assert_eq!(hybrid.controllers.len(), 2);
        assert!(hybrid.controller("cpu").is_some() && hybrid.controller("pids").is_none());
        assert!(hybrid.unified.is_some());

        let pure = parse("0::/proc-is-no-group/x\n", "41 31 0:38 / /proc rw - cgroup2 cgroup2 rw\n");
        assert!(pure.controllers.is_empty());
        assert_eq!(pure.unified_ancestors(), [PathBuf::from("/proc")]);
        assert!(parse("", "").unified.is_none());
    }
}
