//! Names of secrets and of the variables that carry them, and values.

mod support;

use support::value;
use workroom_vault::{EnvironmentName, LARGEST, NameError, SecretName, SecretValue};

#[test]
fn names_are_letters_digits_and_underscores() {
    for good in ["a", "Z", "_", "_x", "API_KEY", "k8s_token_2", &"n".repeat(64)] {
        assert_eq!(SecretName::new(good).unwrap().as_str(), good);
    }
    for bad in ["", "1st", "a-b", "a.b", "a b", "a=b", "a\0b", "a\n", "é", "a/../b", &"n".repeat(65)] {
        assert_eq!(SecretName::new(bad).unwrap_err().code(), "secret_name_malformed", "{bad:?}");
    }
}

#[test]
fn a_secret_given_as_a_name_by_mistake_is_not_repeated() {
    let error = SecretName::new("ghp-0123456789abcdef0123456789abcdef").unwrap_err().to_string();
    assert!(error.contains("\"ghp-0123456789ab…\"") && !error.contains("cdef"), "{error}");
}

#[test]
fn variables_that_break_a_shell_or_shadow_the_loader_are_refused() {
    for (bad, why) in [
        ("PATH", "the room sets it"),
        ("HOME", "the room sets it"),
        ("LD_PRELOAD", "loader"),
        ("LD_LIBRARY_PATH", "loader"),
        ("LD_anything_new", "loader"),
        ("GCONV_PATH", "loader"),
        ("GLIBC_TUNABLES", "loader"),
        ("IFS", "shells obey"),
        ("ENV", "shells obey"),
        ("BASH_ENV", "shells obey"),
        ("BASH_FUNC_x", "shells obey"),
        ("SHELLOPTS", "shells obey"),
        ("PS4", "shells obey"),
        ("PROMPT_COMMAND", "shells obey"),
        ("RANDOM", "would not arrive"),
        ("UID", "would not arrive"),
        ("PYTHONSTARTUP", "interpreter"),
        ("NODE_OPTIONS", "interpreter"),
        ("PERL5OPT", "interpreter"),
        ("_", "underscore"),
        ("_JAVA_OPTIONS", "underscore"),
    ] {
        // It may be a secret's name, but not a variable's.
        SecretName::new(bad).unwrap();
        let error = EnvironmentName::new(bad).unwrap_err();
        assert_eq!(error.code(), "secret_name_reserved", "{bad}");
        assert!(error.to_string().contains(why) && error.to_string().contains(bad), "{error}");
    }
    for bad in ["A=B", "=", "BASH_FUNC_x%%", "a-b", ""] {
        assert_eq!(EnvironmentName::new(bad).unwrap_err().code(), "secret_name_malformed", "{bad:?}");
    }
    for good in
        ["API_KEY", "LDAP_PASSWORD", "PATHS", "ENVIRONMENT", "path", "OLD_ENV", "GITHUB_TOKEN", "PYTHON_KEY"]
    {
        EnvironmentName::new(good).unwrap();
    }
}

/// What a shell makes of variables, asked of the shells that are here: those it changes must be refused.
#[test]
fn no_variable_that_a_shell_changes_is_allowed() {
    for shell in ["sh", "bash", "dash", "zsh"] {
        let set = std::process::Command::new(shell).env_clear().args(["-c", "set"]).output();
        let Ok(set) = set else { continue };
        let own: Vec<String> = String::from_utf8_lossy(&set.stdout)
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name.to_owned())
            .filter(|name| EnvironmentName::new(name).is_ok())
            .collect();
        for name in own {
            let kept = std::process::Command::new(shell)
                .env_clear()
                .env(&name, "hunter22")
                .args(["-c", &format!("printf %s \"${name}\"")])
                .output()
                .expect("the shell ran before");
            assert_eq!(String::from_utf8_lossy(&kept.stdout), "hunter22", "{shell} changes {name}");
        }
    }
}

#[test]
fn names_travel_as_json_and_are_checked_on_the_way() {
    let name: SecretName = serde_json::from_str("\"API_KEY\"").unwrap();
    assert_eq!(serde_json::to_string(&name).unwrap(), "\"API_KEY\"");
    assert!(serde_json::from_str::<SecretName>("\"a b\"").is_err());
    assert!(serde_json::from_str::<EnvironmentName>("\"LD_PRELOAD\"").is_err());
    let error: NameError = "1".parse::<EnvironmentName>().unwrap_err();
    assert_eq!(error.code(), "secret_name_malformed");
}

#[test]
fn values_have_a_size() {
    assert_eq!(value(vec![7; LARGEST]).expose().len(), 64 * 1024);
    for (bytes, code) in [(vec![], "secret_empty"), (vec![7; LARGEST + 1], "secret_too_large")] {
        match SecretValue::new(bytes) {
            Ok(_) => panic!("it was taken"),
            Err(error) => assert_eq!(error.code(), code),
        }
    }
}

/// Does not compile if the type has the trait: then there are two ways to fill in the blank.
macro_rules! lacks {
    ($type:ty: $($trait:path),*) => {
        $({
            trait OneWay<Blank> {
                fn exists() {}
            }
            impl<T: ?Sized> OneWay<()> for T {}
            struct AnotherWay;
            impl<T: ?Sized + $trait> OneWay<AnotherWay> for T {}
            <$type as OneWay<_>>::exists();
        })*
    };
}

#[test]
fn values_and_keys_cannot_be_printed_copied_or_written_by_accident() {
    use workroom_vault::{Keyring, MasterKey, RedactStream, Redactor};
    lacks!(SecretValue: std::fmt::Debug, std::fmt::Display, Clone, serde::Serialize, AsRef<[u8]>);
    lacks!(MasterKey: std::fmt::Debug, std::fmt::Display, Clone, serde::Serialize, AsRef<[u8]>);
    lacks!(Keyring: std::fmt::Debug, std::fmt::Display, Clone, serde::Serialize);
    lacks!(Redactor: std::fmt::Debug, Clone, serde::Serialize);
    lacks!(RedactStream: std::fmt::Debug, Clone, serde::Serialize);
}
