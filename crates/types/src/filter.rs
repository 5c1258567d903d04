//! What an operator does not want to be uploaded, as the server and the clerks of rooms both ask it.
//!
//! A second, legible line for people who act in good faith. Nothing is isolated by it: whoever may run commands can make
//! any file.

use crate::{Problem, ProblemCode, format_bytes};
use serde::{Deserialize, Serialize};

/// Which files may come in. Without any of these, all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UploadRules {
    /// Only names that end with one of these, without the dot; the empty one stands for names without any.
    pub allow: Vec<String>,
    /// No names that end with one of these.
    pub deny: Vec<String>,
    /// Bytes of one file.
    pub largest: Option<u64>,
    /// Files of one request.
    pub files: Option<u64>,
    /// The operator's words for whoever is refused.
    pub reason: String,
}

impl UploadRules {
    /// Whether a file may have this name, wherever it is.
    pub fn check_name(&self, path: &str) -> Result<(), Problem> {
        let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
        let ends = |extension: &String| match extension.as_str() {
            "" => !name.trim_start_matches('.').contains('.'),
            extension => name.strip_suffix(&extension.to_lowercase()).is_some_and(|stem| stem.ends_with('.')),
        };
        if let Some(denied) = self.deny.iter().find(|extension| ends(extension)) {
            return Err(self.refusal(format!("files that end with .{denied} are not taken: \"{name}\"")));
        }
        if !self.allow.is_empty() && !self.allow.iter().any(ends) {
            let allowed: Vec<String> = self.allow.iter().map(|extension| format!(".{extension}")).collect();
            return Err(self.refusal(format!(
                "only files that end with {} are taken, and \"{name}\" does not",
                allowed.join(", ")
            )));
        }
        Ok(())
    }

    pub fn check_size(&self, path: &str, bytes: u64) -> Result<(), Problem> {
        match self.largest {
            Some(largest) if bytes > largest => Err(self.refusal(format!(
                "\"{path}\" is larger than {}, which is the most that is taken",
                format_bytes(largest)
            ))),
            _ => Ok(()),
        }
    }

    pub fn check_count(&self, files: u64) -> Result<(), Problem> {
        match self.files {
            Some(most) if files > most => {
                Err(self.refusal(format!("there are more than {most} files in one request")))
            }
            _ => Ok(()),
        }
    }

    pub fn refusal(&self, detail: String) -> Problem {
        Problem::new(ProblemCode::Filtered, detail, self.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_by_their_ends() {
        let list = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let deny = UploadRules { deny: list(&["exe", "tar.gz"]), ..UploadRules::default() };
        for (name, good) in [
            ("a.txt", true),
            ("exe", true),
            ("dir.exe/a", true),
            ("a.EXE", false),
            ("x/.exe", false),
            ("a.tar.gz", false),
            ("a.gz", true),
        ] {
            assert_eq!(deny.check_name(name).is_ok(), good, "{name}");
        }
        let allow = UploadRules { allow: list(&["md", ""]), ..UploadRules::default() };
        for (name, good) in [("a.md", true), ("Makefile", true), (".profile", true), ("a.md.sh", false)] {
            assert_eq!(allow.check_name(name).is_ok(), good, "{name}");
        }
        assert!(UploadRules::default().check_name("anything.exe").is_ok());
    }
}
