//! Server-sent events: the bytes of a stream, cut anywhere, into events.

use crate::ClientError;
use crate::call::{Call, Client, LARGEST_ANSWER, Opened, root_cause};
use crate::connection::Sender;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::time::Duration;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// `message` where the stream does not say.
    pub event: String,
    pub data: String,
    /// The last id that the stream named, on this event or before it.
    pub id: Option<String>,
}

/// Takes bytes, gives events, holds no more than one of them beside those that were not taken yet.
#[derive(Debug)]
pub struct SseParser {
    line: Vec<u8>,
    /// The last line ended in CR: a LF that comes next belongs to it.
    after_cr: bool,
    first_line: bool,
    event: String,
    data: Vec<u8>,
    has_data: bool,
    id: Option<String>,
    ready: VecDeque<SseEvent>,
    largest: usize,
}

impl Default for SseParser {
    fn default() -> SseParser {
        SseParser::with_limit(LARGEST_ANSWER)
    }
}

impl SseParser {
    /// An event with more bytes than this is refused.
    pub fn with_limit(largest: usize) -> SseParser {
        SseParser {
            line: Vec::new(),
            after_cr: false,
            first_line: true,
            event: String::new(),
            data: Vec::new(),
            has_data: false,
            id: None,
            ready: VecDeque::new(),
            largest,
        }
    }

    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), ClientError> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + self.data.len() + part.len() > self.largest {
                let detail =
                    format!("an event of the stream is over {} bytes; ask for less at once", self.largest);
                return Err(ClientError::Protocol(detail));
            }
            self.line.extend_from_slice(part);
            bytes = rest;
            if let Some(&ending) = rest.first() {
                self.after_cr = ending == b'\r';
                bytes = &rest[1..];
                self.end_line();
            }
        }
        Ok(())
    }

    /// The next event that is whole.
    pub fn next_event(&mut self) -> Option<SseEvent> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.first_line) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            // A comment, which keeps the connection alive.
            Some(0) => return,
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => self.event = String::from_utf8_lossy(value).into_owned(),
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"id" if !value.contains(&0) => self.id = Some(String::from_utf8_lossy(value).into_owned()),
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        if !std::mem::take(&mut self.has_data) {
            return;
        }
        let event = if event.is_empty() { "message".to_owned() } else { event };
        let data = String::from_utf8(data)
            .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned());
        self.ready.push_back(SseEvent { event, data, id: self.id.clone() });
    }
}

/// Why a stream gave no further event.
pub(crate) enum StreamEnd {
    /// The server ended it.
    Over,
    /// The connection broke, or was silent for too long.
    Broke(String),
    Failed(ClientError),
}

/// The events of one answer.
pub(crate) struct SseBody {
    client: Client,
    sender: Option<Sender>,
    body: Incoming,
    parser: SseParser,
    /// A server that says nothing for this long, not even a heartbeat, is gone.
    silence: Option<Duration>,
}

impl SseBody {
    pub(crate) async fn open(
        client: &Client,
        call: &Call,
        silence: Option<Duration>,
    ) -> Result<SseBody, ClientError> {
        Ok(SseBody::of(client, client.open(call).await?, silence))
    }

    pub(crate) fn of(client: &Client, opened: Opened, silence: Option<Duration>) -> SseBody {
        let Opened { response, sender } = opened;
        SseBody {
            client: client.clone(),
            sender: Some(sender),
            body: response.into_body(),
            parser: SseParser::default(),
            silence,
        }
    }

    pub(crate) async fn next(&mut self) -> Result<SseEvent, StreamEnd> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Ok(event);
            }
            let frame = match self.silence {
                None => self.body.frame().await,
                Some(silence) => match tokio::time::timeout(silence, self.body.frame()).await {
                    Ok(frame) => frame,
                    Err(_) => {
                        return Err(StreamEnd::Broke(format!("silent for {} s", silence.as_secs())));
                    }
                },
            };
            match frame {
                None => {
                    if let Some(sender) = self.sender.take() {
                        self.client.give_back(sender);
                    }
                    return Err(StreamEnd::Over);
                }
                Some(Err(error)) => return Err(StreamEnd::Broke(root_cause(&error))),
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.parser.push(&data).map_err(StreamEnd::Failed)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<(String, String, Option<String>)> {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        for chunk in chunks {
            parser.push(chunk).unwrap();
            while let Some(event) = parser.next_event() {
                events.push((event.event, event.data, event.id));
            }
        }
        events
    }

    fn event(event: &str, data: &str, id: Option<&str>) -> (String, String, Option<String>) {
        (event.into(), data.into(), id.map(str::to_owned))
    }

    const STREAM: &str = "\u{feff}: hello\r\nid: 7\r\nevent: stdout\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n: beat\n\n\
                          data:tight\ndata\ndata:  two spaces\n\nevent: unused\n\nid: 8\ndata: ä€\r\rdata: unfinished";

    fn expected() -> Vec<(String, String, Option<String>)> {
        vec![
            event("stdout", "{\"a\":\n1}", Some("7")),
            event("message", "tight\n\n two spaces", Some("7")),
            event("message", "ä€", Some("8")),
        ]
    }

    #[test]
    fn a_stream_of_all_line_endings() {
        assert_eq!(events(&[STREAM.as_bytes()]), expected());
    }

    #[test]
    fn a_stream_cut_anywhere_is_the_same_stream() {
        let bytes = STREAM.as_bytes();
        for cut in 0..=bytes.len() {
            let (front, back) = bytes.split_at(cut);
            assert_eq!(events(&[front, back]), expected(), "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(events(&single), expected());
    }

    #[test]
    fn an_event_that_is_too_large_is_refused() {
        let mut parser = SseParser::with_limit(16);
        parser.push(b"data: 0123456789\n\n").unwrap();
        assert_eq!(parser.next_event().unwrap().data, "0123456789");
        assert!(parser.push(b"data: 0123456789abcdef").is_err());

        let mut parser = SseParser::with_limit(32);
        let lines = (0..20).try_for_each(|_| parser.push(b"data: 012345\n"));
        assert!(lines.is_err(), "many short lines are one long event");
    }

    #[test]
    fn an_empty_data_line_is_an_event_and_none_is_not() {
        assert_eq!(events(&[b"data\n\n"]), [event("message", "", None)]);
        assert_eq!(events(&[b"event: x\nid: 1\n\ndata: y\n\n"]), [event("message", "y", Some("1"))]);
    }
}
