//! `[filters]` of the operator's file: what is not to be uploaded, and commands that are not to be given.
//!
//! A second, legible line for operators who want it, and off unless they say so. It keeps nobody from anything who means
//! it: a command can make any file and run any other command. What a room is kept from, the room's walls keep it from.

use regex_lite::Regex;
use serde::{Deserialize, Deserializer};
use workroom_types::{UploadRules, parse_bytes};

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Filters {
    pub(crate) upload: Option<Upload>,
    pub(crate) commands: Vec<CommandRule>,
    /// Owners whose sessions none of this is for.
    pub(crate) exempt: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Upload {
    allow_extensions: Vec<Extension>,
    deny_extensions: Vec<Extension>,
    #[serde(deserialize_with = "size")]
    largest: Option<u64>,
    files: Option<u64>,
    /// Whether whole sessions may be imported, whose files nobody looks at.
    pub(crate) session_imports: bool,
    reason: String,
}

impl Upload {
    pub(crate) fn rules(&self) -> UploadRules {
        let plain = |list: &[Extension]| list.iter().map(|extension| extension.0.clone()).collect();
        UploadRules {
            allow: plain(&self.allow_extensions),
            deny: plain(&self.deny_extensions),
            largest: self.largest,
            files: self.files,
            reason: self.reason.clone(),
        }
    }
}

/// The end of a name, without the dot before it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Extension(String);

impl TryFrom<String> for Extension {
    type Error = String;

    fn try_from(text: String) -> Result<Extension, String> {
        let plain = text.strip_prefix('.').unwrap_or(&text).to_lowercase();
        if plain.contains(['/', '*', '\0']) || plain.len() > 64 {
            return Err(format!("\"{text}\" is no extension; write it like \"exe\" or \"tar.gz\""));
        }
        Ok(Extension(plain))
    }
}

/// A command that is not to be given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandRule {
    pattern: Pattern,
    pub(crate) reason: String,
}

impl CommandRule {
    /// Whether the rule is about this command: as it was given, or with every run of blanks as one space.
    pub(crate) fn matches(&self, command: &str) -> bool {
        let regex = &self.pattern.regex;
        regex.is_match(command) || regex.is_match(&command.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    pub(crate) fn pattern(&self) -> &str {
        &self.pattern.text
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
struct Pattern {
    text: String,
    regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Pattern, String> {
        let regex = Regex::new(&text).map_err(|error| format!("the pattern \"{text}\" is wrong: {error}"))?;
        Ok(Pattern { text, regex })
    }
}

/// A number of bytes, or text such as `"10M"`.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Size::deserialize(deserializer)? {
        Size::Bytes(bytes) => Ok(Some(bytes)),
        Size::Text(text) => parse_bytes(&text).map(Some).map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Filters, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn filters_are_off_until_somebody_writes_them() {
        let none = parsed("").expect("nothing");
        assert_eq!(none, Filters::default());
        let some = parsed(
            "exempt = [\"ops\"]\n[upload]\ndeny_extensions = [\".EXE\"]\nlargest = \"10M\"\nreason = \"r\"\n\
             [[commands]]\npattern = '^sudo\\b'\nreason = \"no root here\"\n",
        )
        .expect("filters");
        let upload = some.upload.expect("of uploads").rules();
        assert_eq!((upload.deny.as_slice(), upload.largest), (&["exe".to_owned()][..], Some(10 << 20)));
        let rule = &some.commands[0];
        assert!(rule.matches("sudo ls") && !rule.matches("echo sudo") && !rule.matches("sudoers"));
    }

    #[test]
    fn a_mistake_is_told_with_what_it_is() {
        for (text, said) in [
            ("[[commands]]\npattern = '('\nreason = ''\n", "pattern"),
            ("[[commands]]\npattern = 'x'\n", "reason"),
            ("[upload]\nlargest = 'many'\n", "many"),
            ("[upload]\ndeny_extensions = ['*.exe']\n", "*.exe"),
            ("[uploads]\n", "uploads"),
        ] {
            let fault = parsed(text).expect_err(text);
            assert!(fault.contains(said), "{text}: {fault}");
        }
    }

    #[test]
    fn more_blanks_change_nothing() {
        let filters = parsed("[[commands]]\npattern = 'rm -rf /'\nreason = 'no'\n").expect("filters");
        assert!(filters.commands[0].matches("rm   -rf\t/"));
    }
}
