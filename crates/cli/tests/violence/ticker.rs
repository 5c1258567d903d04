//! A command that runs for as long as the test does, whatever becomes of the server, and says every step.

use super::line::{Line, Request, Stream};
use serde_json::{Value, json};
use std::time::Duration;
use workroom_client::SseEvent;

/// A line of about a hundred bytes for each step, until there is a file that says that it is enough.
const SCRIPT: &str = r#"
echo started >> starts
pad=$(printf '%080d' 0)
n=0
until [ -e enough ]; do
  n=$((n + 1))
  echo "tick $n $pad"
  sleep 0.25
done
echo "end $n""#;

pub(crate) struct Ticker {
    line: Line,
    pub(crate) session: String,
    request: Request,
}

/// The command while it runs, and what it has said.
pub(crate) struct Running {
    stream: Stream,
    seen: String,
}

impl Ticker {
    pub(crate) async fn new(line: &Line, name: String) -> Ticker {
        let made = line.post("/v1/sessions", Some(json!({ "name": name }))).await;
        let session = made.expect(201)["id"].as_str().expect("an id").to_owned();
        let request = json!({ "command": SCRIPT, "timeout_ms": 3_600_000 });
        let request = Request::post(format!("/v1/sessions/{session}/exec"), Some(request)).under(name);
        Ticker { line: line.clone(), session, request }
    }

    /// Starts the command, and waits until it runs. Its output is read as it comes.
    pub(crate) async fn start(&self) -> Running {
        let mut stream = self.line.stream(&self.request).await.expect("a stream");
        let mut seen = String::new();
        while seen.is_empty() {
            let event = stream.next().await.expect("an event");
            self.note(&event, &mut seen);
        }
        Running { stream, seen }
    }

    /// Waits for the command's end, asking again under the same key whenever the server is gone: what comes then
    /// begins with what had come before.
    pub(crate) async fn run_to_end(&self, running: Running) {
        let Running { mut stream, mut seen } = running;
        while let Some(event) = stream.next().await {
            if let Some(result) = self.note(&event, &mut seen) {
                return check(&result, &seen);
            }
        }
        // Its answer comes when the test says that it is enough, and not before.
        let patience = Duration::from_secs(3600);
        let heard = loop {
            match self.line.attempt_for(&self.request, patience).await {
                Ok(heard) => break heard,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        check(heard.expect(200), &seen);
    }

    /// Notes what comes out; gives the result when it is that.
    fn note(&self, event: &SseEvent, seen: &mut String) -> Option<Value> {
        let data: Value = serde_json::from_str(&event.data).expect("JSON");
        match event.event.as_str() {
            "stdout" => {
                assert_eq!(data["offset"], seen.len(), "nothing is missing in between");
                seen.push_str(data["data"].as_str().expect("text"));
                None
            }
            "exit" => Some(data),
            other => panic!("{other}: {data}"),
        }
    }

    pub(crate) async fn enough(&self) {
        self.line.says(&self.session, "touch enough").await;
        let starts = self.line.says(&self.session, "cat starts").await;
        assert_eq!(starts, "started\n", "it ran once");
    }
}

/// Every byte is there, in its place.
fn check(result: &Value, seen: &str) {
    let output = result["stdout"].as_str().expect("text");
    assert_eq!(result["stdout_bytes"], output.len(), "every byte is there");
    assert_eq!(result["exit_code"], 0, "{result}");
    assert!(output.starts_with(seen), "it goes on where it broke off");
    let pad = "0".repeat(80);
    let lines: Vec<&str> = output.lines().collect();
    let (last, ticks) = lines.split_last().expect("some output");
    assert_eq!(*last, format!("end {}", ticks.len()));
    for (number, line) in ticks.iter().enumerate() {
        assert_eq!(*line, format!("tick {} {pad}", number + 1));
    }
}
