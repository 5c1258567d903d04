//! Where master keys come from: a private file, the environment, a command.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use support::{Scratch, name, value};
use workroom_vault::{Existing, KeyError, KeySource, Keyring, Place, SecretScope};

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff";
/// The same bytes.
const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHv8=";
const BASE64_URL: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHv8";

fn error(loaded: Result<Keyring, KeyError>) -> KeyError {
    match loaded {
        Ok(_) => panic!("there is a key"),
        Err(error) => error,
    }
}

fn place() -> Place {
    Place { scope: SecretScope::Global, name: name("API_KEY"), version: 1 }
}

#[test]
fn a_key_is_hex_or_base64_of_32_bytes() {
    let id = Keyring::parse(HEX).unwrap().current().id();
    for text in [&HEX.to_uppercase(), BASE64, BASE64_URL, &format!("# a comment\n\n  {BASE64}\r\n")] {
        assert_eq!(Keyring::parse(text).unwrap().current().id(), id, "{text}");
    }
    let several =
        Keyring::parse(&format!("{},{BASE64} {HEX}\n{}", "aa".repeat(32), "bb".repeat(32))).unwrap();
    assert_eq!(several.ids().count(), 3, "one of them twice");
    assert_eq!(several.ids().nth(1), Some(id));
    for (text, code) in [
        ("", "key_none"),
        ("# nothing\n", "key_none"),
        ("hunter22hunter22", "key_malformed"),
        (&HEX[..62], "key_malformed"),
        (&HEX.replace('f', "g"), "key_malformed"),
        (&HEX.replace("0f", "+f"), "key_malformed"),
        (&format!("{HEX} {}", &BASE64[..40]), "key_malformed"),
    ] {
        let error = error(Keyring::parse(text));
        assert_eq!(error.code(), code, "{text}");
        assert!(!error.to_string().contains("hunter22"), "{error}");
    }
}

#[test]
fn a_key_file_is_made_once_for_us_alone() {
    let scratch = Scratch::new();
    let path = scratch.path().join("vault.key");
    let source = KeySource::File(path.clone());
    let first = source.load(Existing::Nothing).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    for existing in [Existing::Nothing, Existing::Sealed] {
        assert_eq!(source.load(existing).unwrap().current().id(), first.current().id());
    }
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing but the key: {left:?}");
}

/// A process of its own has the umask: this very test, told where to make the file.
#[test]
fn a_key_file_is_for_us_alone_and_for_us_whatever_the_umask() {
    const PATH: &str = "VAULT_TEST_KEY_FILE";
    if let Some(path) = std::env::var_os(PATH) {
        KeySource::File(path.into()).load(Existing::Nothing).unwrap();
        return;
    }
    let scratch = Scratch::new();
    for umask in ["0", "022", "0277"] {
        let path = scratch.path().join(umask);
        let status = Command::new("sh")
            .args(["-c", &format!("umask {umask} && exec \"$0\" --exact \"$1\"")])
            .arg(std::env::current_exe().unwrap())
            .arg("a_key_file_is_for_us_alone_and_for_us_whatever_the_umask")
            .env(PATH, &path)
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600, "umask {umask}");
    }
}

#[test]
fn those_who_make_the_key_file_at_the_same_time_have_the_same_key() {
    let scratch = Scratch::new();
    let source = KeySource::File(scratch.path().join("vault.key"));
    let ids: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| source.load(Existing::Nothing).unwrap().current().id())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn a_key_that_is_missing_while_secrets_are_sealed_is_not_made_anew() {
    let scratch = Scratch::new();
    let path = scratch.path().join("vault.key");
    let error = error(KeySource::File(path.clone()).load(Existing::Sealed));
    assert_eq!(error.code(), "key_file_missing");
    assert!(error.to_string().contains("vault.key") && !path.exists(), "{error}");
}

fn refused(path: &Path) -> String {
    let error = error(KeySource::File(path.into()).load(Existing::Nothing));
    assert_eq!(error.code(), "key_file_unsafe", "{error}");
    error.to_string()
}

#[test]
fn a_key_file_that_others_may_have_read_or_written_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.path().join("vault.key");
    for mode in [0o640, 0o604, 0o660, 0o602, 0o610, 0o777] {
        std::fs::write(&path, HEX).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let words = refused(&path);
        assert!(words.contains(&format!("{mode:04o}")) && words.contains("chmod 600"), "{words}");
    }
    for mode in [0o600, 0o400] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        KeySource::File(path.clone()).load(Existing::Nothing).unwrap();
    }
}

#[test]
fn a_key_file_of_somebody_else_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give files away");
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path().join("vault.key");
    std::fs::write(&path, HEX).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    chown(&path, Some(12_345), None).unwrap();
    assert!(refused(&path).contains("belongs to the user 12345"));
}

#[test]
fn what_is_not_a_plain_file_is_refused_and_nobody_waits_for_it() {
    let scratch = Scratch::new();
    let (real, path) = (scratch.path().join("real"), scratch.path().join("vault.key"));
    std::fs::write(&real, HEX).unwrap();
    std::fs::set_permissions(&real, PermissionsExt::from_mode(0o600)).unwrap();
    symlink(&real, &path).unwrap();
    assert!(refused(&path).contains("symbolic link"));
    std::fs::remove_file(&path).unwrap();
    // One that leads nowhere is not a place to make a key either.
    symlink(scratch.path().join("nowhere"), &path).unwrap();
    assert!(refused(&path).contains("symbolic link"));
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert!(refused(&path).contains("not a plain file"));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(refused(&path).contains("not a plain file"));
    let nowhere = error(KeySource::File(scratch.path().join("no/vault.key")).load(Existing::Nothing));
    assert_eq!(nowhere.code(), "key_file_failed", "{nowhere}");
}

/// The variable is set for a process of its own: this very test, told so.
#[test]
fn a_key_from_the_environment() {
    const VARIABLE: &str = "VAULT_TEST_KEY";
    let source = KeySource::Environment(VARIABLE.into());
    if std::env::var_os(VARIABLE).is_some() {
        let ring = source.load(Existing::Sealed).unwrap();
        assert_eq!(ring.current().id(), Keyring::parse(HEX).unwrap().current().id());
        return;
    }
    assert_eq!(error(source.load(Existing::Nothing)).code(), "key_variable_missing");
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program)
        .args(["--exact", "a_key_from_the_environment"])
        .env(VARIABLE, BASE64)
        .status()
        .unwrap();
    assert!(status.success());
}

fn command(script: &str) -> KeySource {
    KeySource::Command(["sh", "-c", script].map(str::to_owned).to_vec())
}

#[test]
fn a_key_from_a_command() {
    let ring = command(&format!("echo {BASE64}; echo complaints >&2")).load(Existing::Sealed).unwrap();
    assert_eq!(ring.current().id(), Keyring::parse(HEX).unwrap().current().id());
    for (script, words) in [
        (format!("echo {HEX}; exit 3"), "exit status: 3"),
        (format!("echo {HEX}; kill -9 $$"), "signal: 9"),
        ("head -c 100000 /dev/zero".into(), "printed more than"),
        ("printf '\\377\\376'".into(), "no text"),
    ] {
        let error = error(command(&script).load(Existing::Sealed));
        assert_eq!(error.code(), "key_command_failed", "{error}");
        assert!(error.to_string().contains(words) && !error.to_string().contains("0001"), "{error}");
    }
    assert_eq!(error(command("true").load(Existing::Sealed)).code(), "key_none");
    let missing = KeySource::Command(vec!["/no/such/program".into(), HEX.into()]);
    let error = error(missing.load(Existing::Sealed));
    assert!(error.to_string().contains("/no/such/program") && !error.to_string().contains(HEX), "{error}");
}

#[test]
fn a_key_that_is_not_ours_to_write_is_not_rotated() {
    for source in [command("true"), KeySource::Environment("X".into())] {
        assert_eq!(error(source.rotate()).code(), "key_source_read_only");
        assert_eq!(error(source.retire(|_| false)).code(), "key_source_read_only");
    }
}

#[test]
fn rotation_keeps_old_keys_until_they_are_retired() {
    let scratch = Scratch::new();
    let source = KeySource::File(scratch.path().join("vault.key"));
    let first = source.load(Existing::Nothing).unwrap();
    let old = first.seal(&place(), &value("hunter22")).unwrap();
    let ring = source.rotate().unwrap();
    assert_ne!(ring.current().id(), first.current().id());
    assert!(ring.open(&place(), &old).unwrap().expose() == b"hunter22");
    let new = ring.reseal(&place(), &old).unwrap().expect("it was sealed under the old key");
    assert_eq!(new.key_id(), ring.current().id());
    assert_eq!(ring.reseal(&place(), &new).unwrap(), None);
    // Still in use by somebody: it stays.
    let kept = source.retire(|id| id == old.key_id()).unwrap();
    assert_eq!(kept.ids().count(), 2);
    let retired = source.retire(|_| false).unwrap();
    assert_eq!(retired.ids().collect::<Vec<_>>(), [ring.current().id()]);
    let loaded = source.load(Existing::Sealed).unwrap();
    assert!(loaded.open(&place(), &new).unwrap().expose() == b"hunter22");
    assert!(loaded.open(&place(), &old).is_err());
}
