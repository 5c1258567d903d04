//! Nobody else reads the store's files, whatever the umask. Alone in its binary: the umask is the process's.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use support::{Dir, with_entries};
use workroom_store::{Settings, Store};

#[tokio::test]
async fn every_file_is_0600_under_any_umask() {
    for umask in [0o000, 0o777] {
        let dir = Dir::new();
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
        let settings = Settings { ballast_first: Duration::ZERO, ..Settings::default() };
        let store = Store::open_with(dir.path(), settings).await.expect("the store opens");
        with_entries(&store, "s", 3).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        while !dir.path().join("ballast").exists() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut names: Vec<String> = Vec::new();
        for file in std::fs::read_dir(dir.path()).unwrap() {
            let file = file.unwrap();
            names.push(file.file_name().into_string().unwrap());
            assert_eq!(
                file.metadata().unwrap().permissions().mode() & 0o777,
                0o600,
                "{names:?} at {umask:o}"
            );
        }
        names.sort();
        assert_eq!(names, ["ballast", "journal.key", "store.db", "store.db-shm", "store.db-wal"]);
        store.close().await;
    }
}
