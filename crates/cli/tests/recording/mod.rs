//! Recordings as anybody reads them who has only the published rules of asciicast: no code of ours.
#![allow(dead_code)] // each test file uses its own part of this

use serde_json::Value;
use std::process::Command;
use workroom_testkit::{Server, TestSession, eventually, within};

/// A recording, with times since its start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cast {
    pub(crate) header: Value,
    pub(crate) events: Vec<(f64, String, String)>,
}

impl Cast {
    /// Version 3: a header, then `[interval, code, data]`, lines with `#` are comments.
    pub(crate) fn v3(bytes: &[u8]) -> Cast {
        let text = str::from_utf8(bytes).expect("a recording is UTF-8");
        assert!(text.ends_with('\n'), "every line has an end: {:?}", &text[text.len().saturating_sub(100)..]);
        let mut lines = text.lines();
        let header: Value = serde_json::from_str(lines.next().expect("a header")).expect("JSON");
        assert_eq!(header["version"], 3, "{header}");
        for size in ["cols", "rows"] {
            assert!(header["term"][size].as_u64().is_some_and(|size| size > 0), "{header}");
        }
        let (mut time, mut events) = (0.0, Vec::new());
        for line in lines.filter(|line| !line.starts_with('#')) {
            let (interval, code, data) = event(line);
            assert!(interval >= 0.0, "{line}");
            time += interval;
            events.push((time, code, data));
        }
        Cast { header, events }
    }

    /// Version 2: a header, then `[time, code, data]` in the order of their times, and nothing else.
    pub(crate) fn v2(bytes: &[u8]) -> Cast {
        let text = str::from_utf8(bytes).expect("a recording is UTF-8");
        let mut lines = text.lines();
        let header: Value = serde_json::from_str(lines.next().expect("a header")).expect("JSON");
        assert_eq!(header["version"], 2, "{header}");
        assert!(header["width"].as_u64().is_some() && header["height"].as_u64().is_some(), "{header}");
        let events: Vec<_> = lines.map(event).collect();
        assert!(events.is_sorted_by(|one, next| one.0 <= next.0), "times go forward");
        assert!(events.iter().all(|(_, code, _)| ["o", "i", "m", "r"].contains(&code.as_str())));
        Cast { header, events }
    }

    /// All that was shown.
    pub(crate) fn output(&self) -> String {
        self.data("o").concat()
    }

    /// What all events of a kind say.
    pub(crate) fn data(&self, code: &str) -> Vec<&str> {
        self.events.iter().filter(|(_, is, _)| is == code).map(|(_, _, data)| data.as_str()).collect()
    }

    /// The codes in their order, those of output that follows output left out.
    pub(crate) fn order(&self) -> String {
        let mut order: String = self.events.iter().map(|(_, code, _)| code.as_str()).collect();
        while order.contains("oo") {
            order = order.replace("oo", "o");
        }
        order
    }
}

fn event(line: &str) -> (f64, String, String) {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let parts = value.as_array().unwrap_or_else(|| panic!("{line} is no list"));
    assert_eq!(parts.len(), 3, "{line}");
    let text = |part: &Value| part.as_str().unwrap_or_else(|| panic!("{line}: no text")).to_owned();
    (parts[0].as_f64().unwrap_or_else(|| panic!("{line}: no time")), text(&parts[1]), text(&parts[2]))
}

/// The bytes of an answer that must be 200.
pub(crate) async fn get(server: &Server<'_>, path: &str) -> Vec<u8> {
    let answer = within("a recording", server.http().get(path)).await;
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.body
}

pub(crate) async fn cast(server: &Server<'_>, session: &TestSession, process: &str) -> Cast {
    Cast::v3(&get(server, &session.path(&format!("/recordings/{process}"))).await)
}

pub(crate) async fn transcript(server: &Server<'_>, session: &TestSession, process: &str) -> String {
    let text = get(server, &session.path(&format!("/recordings/{process}/transcript"))).await;
    String::from_utf8(text).expect("text")
}

/// Waits until a recording that is being made shows this.
pub(crate) async fn recorded(server: &Server<'_>, session: &TestSession, process: &str, wanted: &str) {
    eventually(async || {
        let answer = server.http().get(&session.path(&format!("/recordings/{process}"))).await;
        if answer.status != 200 {
            return Err(format!("{}", answer.status));
        }
        let shown = Cast::v3(&answer.body).output();
        if shown.contains(wanted) { Ok(()) } else { Err(format!("{wanted:?} is not in {shown:?}")) }
    })
    .await;
}

/// What a stock player prints of a recording; nothing where none is installed. Those before the third read no third version, and
/// want a terminal.
pub(crate) fn stock_player(file: &std::path::Path) -> Option<String> {
    let said = Command::new("asciinema").arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let major: u64 = said.split_whitespace().last()?.split('.').next()?.parse().ok()?;
    if major < 3 {
        return None;
    }
    let played = Command::new("asciinema")
        .args(["convert", "--overwrite", "--output-format", "raw"])
        .arg(file)
        .arg("-")
        .output()
        .expect("asciinema");
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    Some(String::from_utf8(played.stdout).expect("text"))
}
