//! A rotation that is killed at any moment: every record can be opened, and the next one finishes.

mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Scratch, name, value};
use workroom_vault::{Existing, KeySource, Keyring, Place, Sealed, SecretScope};

const RECORDS: u64 = 40;
const DIRECTORY: &str = "VAULT_TEST_ROTATION";

fn place(version: u64) -> Place {
    Place { scope: SecretScope::Session("20260101-000000-0123abcd".into()), name: name("TOKEN"), version }
}

fn record(directory: &Path, version: u64) -> PathBuf {
    directory.join(format!("record-{version}"))
}

fn source(directory: &Path) -> KeySource {
    KeySource::File(directory.join("vault.key"))
}

fn read(directory: &Path, version: u64) -> Sealed {
    Sealed::from_bytes(std::fs::read(record(directory, version)).unwrap()).unwrap()
}

/// As a store does it: the old record or the new one, never half of one.
fn write(directory: &Path, version: u64, sealed: &Sealed) {
    let temporary = directory.join("record.new");
    std::fs::write(&temporary, sealed.as_bytes()).unwrap();
    std::fs::rename(&temporary, record(directory, version)).unwrap();
}

fn reseal_all(directory: &Path, ring: &Keyring) {
    for version in 0..RECORDS {
        if let Some(sealed) = ring.reseal(&place(version), &read(directory, version)).unwrap() {
            write(directory, version, &sealed);
        }
    }
    let in_use: Vec<_> = (0..RECORDS).map(|version| read(directory, version).key_id()).collect();
    source(directory).retire(|id| in_use.contains(&id)).unwrap();
}

fn all_open(directory: &Path) -> usize {
    let ring = source(directory).load(Existing::Sealed).unwrap();
    for version in 0..RECORDS {
        let opened = ring.open(&place(version), &read(directory, version)).unwrap();
        assert!(opened.expose() == format!("secret {version}").as_bytes());
    }
    ring.ids().count()
}

#[test]
fn a_rotation_killed_at_any_moment_loses_nothing_and_is_finished_by_the_next() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return rotate_for_ever(Path::new(&directory));
    }
    let scratch = Scratch::new();
    let ring = source(scratch.path()).load(Existing::Nothing).unwrap();
    for version in 0..RECORDS {
        let sealed = ring.seal(&place(version), &value(format!("secret {version}"))).unwrap();
        write(scratch.path(), version, &sealed);
    }
    let (mut unfinished, started) = (0, Instant::now());
    for round in 0..40 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_rotation_killed_at_any_moment_loses_nothing_and_is_finished_by_the_next"])
            .arg("--nocapture")
            .env(DIRECTORY, scratch.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It says when it has begun; from there on a little later each time.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("rotating"))).unwrap().unwrap();
        std::thread::sleep(Duration::from_micros(round * 311));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        unfinished += usize::from(all_open(scratch.path()) > 1);
        assert!(started.elapsed() < Duration::from_secs(120));
    }
    println!("{unfinished} of 40 were killed in the middle");
    assert!(unfinished > 0, "a kill must have hit the middle of a rotation");
    reseal_all(scratch.path(), &source(scratch.path()).rotate().unwrap());
    assert_eq!(all_open(scratch.path()), 1);
}

fn rotate_for_ever(directory: &Path) {
    println!("rotating");
    loop {
        let ring = source(directory).rotate().unwrap();
        reseal_all(directory, &ring);
    }
}

/// The same without luck: stopped after each of its steps in turn.
#[test]
fn a_rotation_stopped_after_any_step_leaves_every_record_readable() {
    for steps in 0..=RECORDS {
        let scratch = Scratch::new();
        let ring = source(scratch.path()).load(Existing::Nothing).unwrap();
        for version in 0..RECORDS {
            let sealed = ring.seal(&place(version), &value(format!("secret {version}"))).unwrap();
            write(scratch.path(), version, &sealed);
        }
        let ring = source(scratch.path()).rotate().unwrap();
        for version in 0..steps {
            let sealed = ring.reseal(&place(version), &read(scratch.path(), version)).unwrap().unwrap();
            write(scratch.path(), version, &sealed);
        }
        assert_eq!(all_open(scratch.path()), 2);
        // Who comes next goes on with the key that was made, and retires the old one.
        reseal_all(scratch.path(), &source(scratch.path()).load(Existing::Sealed).unwrap());
        assert_eq!(all_open(scratch.path()), 1);
    }
}
