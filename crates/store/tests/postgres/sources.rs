//! The statements that stand in the store's sources: to see that none was left out.

use std::path::Path;

/// Those of which nothing that was used is made.
pub(crate) fn statements_that_are_not_in(used: &[String]) -> Vec<String> {
    let mut missing = in_sources();
    assert!(missing.len() > 40, "the sources are read wrongly: {missing:#?}");
    missing.retain(|text| !used.iter().any(|statement| is_made_of(statement, text)));
    missing
}

/// Whether a statement has all that is said around the holes of a format, in this order.
fn is_made_of(statement: &str, text: &str) -> bool {
    let mut rest = statement;
    let pieces = text.split('{').enumerate().map(|(index, piece)| match index {
        0 => piece,
        _ => piece.split_once('}').map_or(piece, |(_, after)| after),
    });
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
}

/// Every text in the sources that is a statement, or continues one.
fn in_sources() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for entry in dir.read_dir().expect("the sources") {
        let path = entry.expect("an entry").path();
        let source = std::fs::read_to_string(&path).expect("a source");
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        found.extend(texts(source).into_iter().filter(|text| is_sql(text)));
    }
    found
}

fn is_sql(text: &str) -> bool {
    let verbs = ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM "];
    verbs.iter().any(|verb| text.starts_with(verb))
        || [" AND ", " WHERE ", " ORDER BY ", " LIMIT "].iter().any(|word| text.contains(word))
}

/// The string literals of a Rust source, with lines that go on put together.
fn texts(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = source.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '/' if chars.peek() == Some(&'/') => {
                chars.by_ref().find(|char| *char == '\n');
            }
            // A character, not the beginning of a text.
            '\'' if chars.peek() == Some(&'"') => {
                chars.next();
            }
            '"' => {
                let mut text = String::new();
                while let Some(char) = chars.next() {
                    match char {
                        '"' => break,
                        '\\' => match chars.next() {
                            Some('\n') => while chars.next_if(|char| char.is_whitespace()).is_some() {},
                            Some(escaped) => text.push(escaped),
                            None => {}
                        },
                        other => text.push(other),
                    }
                }
                found.push(text);
            }
            _ => {}
        }
    }
    found
}
