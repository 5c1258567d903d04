//! Tests of recordings: what is written, what is read back, budgets, and files that were broken off.

use super::*;
use std::io::{self, Write};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn recorder(budget: u64) -> Recorder<Vec<u8>> {
    Recorder::new(Vec::new(), &Header::new(80, 24), budget).expect("a recorder")
}

fn finished(recorder: Recorder<Vec<u8>>, at: f64) -> String {
    String::from_utf8(recorder.finish(seconds(at)).expect("written")).expect("text")
}

fn events(cast: &str) -> Vec<Event> {
    let reader = Reader::new(cast.as_bytes()).expect("a recording");
    reader.collect::<Result<_, _>>().expect("events")
}

fn kept(result: Result<Recorded, CastError>) {
    assert_eq!(result.expect("written"), Recorded::Kept);
}

fn sample() -> String {
    let mut header = Header::new(80, 24);
    header.timestamp = Some(1_700_000_000);
    header.command = Some("/bin/sh".into());
    header.title = Some("a \"title\"".into());
    header.idle_time_limit = Some(2.5);
    header.env.insert("SHELL".into(), "/bin/sh".into());
    header.tags.push("demo".into());
    header.term.kind = Some("xterm-256color".into());
    let theme = Theme { fg: "#ffffff".into(), bg: "#000000".into(), palette: "#000000:#ff0000".into() };
    header.term.theme = Some(theme);
    let mut recorder = Recorder::new(Vec::new(), &header, 1 << 20).expect("a recorder");
    kept(recorder.output(seconds(0.25), Source::Stdout, "$ é\r\n\x1b[31m".as_bytes()));
    kept(recorder.input(seconds(1.5), b"exit\r"));
    kept(recorder.event(seconds(1.500_001), &EventKind::Resize { cols: 100, rows: 50 }));
    kept(recorder.event(seconds(2.0), &EventKind::Marker("here".into())));
    kept(recorder.output(seconds(2.0), Source::Stdout, b"bye\r\n"));
    kept(recorder.event(seconds(3.75), &EventKind::Exit(3)));
    finished(recorder, 4.0)
}

#[test]
fn a_recording_is_lines_of_json_with_intervals() {
    let expected = concat!(
        r##"{"version":3,"term":{"cols":80,"rows":24,"type":"xterm-256color","theme":{"fg":"#ffffff","bg":"#000000","##,
        r##""palette":"#000000:#ff0000"}},"timestamp":1700000000,"idle_time_limit":2.5,"command":"/bin/sh","##,
        r##""title":"a \"title\"","env":{"SHELL":"/bin/sh"},"tags":["demo"]}"##,
        "\n",
        "[0.250000, \"o\", \"$ é\\r\\n\\u001b[31m\"]\n",
        "[1.250000, \"i\", \"exit\\r\"]\n",
        "[0.000001, \"r\", \"100x50\"]\n",
        "[0.499999, \"m\", \"here\"]\n",
        "[0.000000, \"o\", \"bye\\r\\n\"]\n",
        "[1.750000, \"x\", \"3\"]\n",
    );
    assert_eq!(sample(), expected);
}

#[test]
fn what_was_written_is_read_back() {
    let sample = sample();
    let mut reader = Reader::new(sample.as_bytes()).expect("a recording");
    assert_eq!(reader.header().title.as_deref(), Some("a \"title\""));
    assert_eq!(reader.header().term.kind.as_deref(), Some("xterm-256color"));
    let events: Vec<Event> = reader.by_ref().collect::<Result<_, _>>().expect("events");
    let times: Vec<u64> = events.iter().map(|event| event.at.as_micros() as u64).collect();
    assert_eq!(times, [250_000, 1_500_000, 1_500_001, 2_000_000, 2_000_000, 3_750_000]);
    assert_eq!(events[0].kind, EventKind::Output("$ é\r\n\x1b[31m".into()));
    assert_eq!(events[1].kind, EventKind::Input("exit\r".into()));
    assert_eq!(events[2].kind, EventKind::Resize { cols: 100, rows: 50 });
    assert_eq!(events[3].kind, EventKind::Marker("here".into()));
    assert_eq!(events[5].kind, EventKind::Exit(3));
    assert_eq!(reader.whole_bytes(), sample.len() as u64);
    assert!(!reader.is_cut_off());
    assert_eq!(reader.whole_time(), seconds(3.75));
}

#[test]
fn characters_cut_between_outputs_are_whole_in_the_recording() {
    let mut recorder = recorder(1 << 20);
    let bytes = "界".as_bytes();
    kept(recorder.output(seconds(1.0), Source::Stdout, &[b"a", &bytes[..1]].concat()));
    kept(recorder.output(seconds(2.0), Source::Stdout, &bytes[1..2]));
    kept(recorder.input(seconds(2.5), b"x\xff"));
    kept(recorder.output(seconds(3.0), Source::Stdout, &[&bytes[2..], b"\xff", &bytes[..2]].concat()));
    let cast = finished(recorder, 4.0);
    let kinds: Vec<EventKind> = events(&cast).into_iter().map(|event| event.kind).collect();
    let output = |text: &str| EventKind::Output(text.into());
    assert_eq!(
        kinds,
        [output("a"), EventKind::Input("x\u{fffd}".into()), output("界\u{fffd}"), output("\u{fffd}")]
    );
}

#[test]
fn a_character_waits_for_its_rest_from_the_same_source() {
    let mut recorder = recorder(1 << 20);
    let bytes = "界".as_bytes();
    kept(recorder.output(seconds(1.0), Source::Stdout, &bytes[..1]));
    assert_eq!((recorder.held(Source::Stdout), recorder.held(Source::Stderr)), (1, 0));
    kept(recorder.output(seconds(1.0), Source::Stderr, b"e"));
    kept(recorder.output(seconds(1.0), Source::Stdout, &bytes[1..]));
    assert_eq!(recorder.held(Source::Stdout), 0);
    kept(recorder.output(seconds(1.0), Source::Stdout, &bytes[..2]));
    kept(recorder.give_up(seconds(1.0), Source::Stdout));
    let kinds: Vec<EventKind> =
        events(&finished(recorder, 1.0)).into_iter().map(|event| event.kind).collect();
    let output = |text: &str| EventKind::Output(text.into());
    assert_eq!(kinds, [output("e"), output("界"), output("\u{fffd}")]);
}

#[test]
fn notes_are_lines_that_readers_pass_over_and_fit_into_the_budget() {
    for budget in [1000, 5000] {
        let mut recorder = recorder(budget);
        let note = "x\n".repeat(500);
        while recorder.output(seconds(1.0), Source::Stdout, b"twenty bytes of text").expect("written")
            == Recorded::Kept
        {
            if recorder.events().is_multiple_of(3) {
                recorder.note(&note).expect("written");
            }
        }
        recorder.note(&note).expect("written");
        let kept = recorder.events();
        let cast = finished(recorder, 10.0);
        assert!(cast.len() as u64 <= budget, "{} of {budget}", cast.len());
        assert!(cast.lines().all(|line| line.len() < 256));
        assert_eq!(events(&cast).len() as u64, kept);
    }
}

#[test]
fn a_recording_is_read_in_parts() {
    let sample = sample();
    let whole = events(&sample);
    let lines: Vec<usize> = sample.match_indices('\n').map(|(at, _)| at + 1).collect();
    for cut in lines {
        let mut first = Reader::new(&sample.as_bytes()[..cut]).expect("a recording");
        let mut read: Vec<Event> = first.by_ref().collect::<Result<_, _>>().expect("events");
        let rest = Reader::of_rest(&sample.as_bytes()[cut..], first.header().clone(), first.whole_time());
        read.extend(rest.map(|event| event.expect("an event")));
        assert_eq!(read, whole, "cut at {cut}");
    }
}

#[test]
fn time_never_goes_back_and_rounding_does_not_add_up() {
    let mut recorder = recorder(1 << 20);
    kept(recorder.output(seconds(5.0), Source::Stdout, b"a"));
    kept(recorder.output(seconds(4.0), Source::Stdout, b"b"));
    let mut at = Duration::from_secs(5);
    for _ in 0..1000 {
        at += Duration::from_nanos(1_000_333);
        kept(recorder.output(at, Source::Stdout, b"c"));
    }
    let events = events(&finished(recorder, 9.0));
    assert_eq!(events[1].at, Duration::from_secs(5));
    assert!(at - events.last().expect("events").at < Duration::from_micros(1));
}

#[test]
fn a_budget_that_is_used_up_ends_the_recording_with_a_marker() {
    for budget in [300, 1000, 5000] {
        let mut recorder = recorder(budget);
        let mut stopped = 0;
        for tick in 0..200 {
            if recorder
                .output(Duration::from_millis(tick), Source::Stdout, b"twenty bytes of text")
                .expect("written")
                == Recorded::Stopped
            {
                stopped += 1;
            }
        }
        assert!(recorder.is_stopped());
        assert_eq!(recorder.dropped(), stopped);
        assert!(stopped > 0);
        let cast = finished(recorder, 10.0);
        assert!(cast.len() as u64 <= budget, "{} of {budget}", cast.len());
        let events = events(&cast);
        assert_eq!(events.len() as u64, 200 - stopped + 1);
        assert_eq!(
            events.last().expect("events").kind,
            EventKind::Marker(format!("the recording stops here: its budget of {budget} bytes is used up"))
        );
    }
}

#[test]
fn a_large_output_is_several_events() {
    let mut recorder = recorder(10 << 20);
    let text = "é".repeat(40_000);
    kept(recorder.output(seconds(1.0), Source::Stdout, text.as_bytes()));
    let events = events(&finished(recorder, 2.0));
    assert_eq!(events.len(), 5);
    let all: String = events.iter().map(|event| event.kind.data()).collect();
    assert_eq!(all, text);
    assert!(events.iter().all(|event| event.at == seconds(1.0)));
}

/// Keeps what each write was, and fails from some point on.
struct Disk {
    writes: Vec<Vec<u8>>,
    room: usize,
}

impl Write for &mut Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        self.writes.push(bytes[..taken].to_vec());
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn only_whole_lines_are_written() {
    let mut disk = Disk { writes: Vec::new(), room: usize::MAX };
    let mut recorder = Recorder::new(&mut disk, &Header::new(80, 24), 1 << 30).expect("a recorder");
    for tick in 0..10_000 {
        kept(recorder.output(Duration::from_millis(tick), Source::Stdout, b"some output\r\n"));
    }
    recorder.finish(seconds(20.0)).expect("written");
    assert!(disk.writes.len() > 5);
    assert!(disk.writes.iter().all(|bytes| bytes.ends_with(b"]\n")));
}

#[test]
fn a_recording_that_cannot_be_written_is_given_up() {
    let mut disk = Disk { writes: Vec::new(), room: 100 };
    let mut recorder = Recorder::new(&mut disk, &Header::new(80, 24), 1 << 30).expect("a recorder");
    kept(recorder.output(seconds(1.0), Source::Stdout, &b"x".repeat(500)));
    assert!(matches!(recorder.flush(), Err(CastError::Io(_))));
    assert!(matches!(recorder.output(seconds(2.0), Source::Stdout, b"more"), Err(CastError::GivenUp)));
    assert!(matches!(recorder.finish(seconds(3.0)), Err(CastError::GivenUp)));
}

#[test]
fn a_recording_cut_at_any_byte_is_read_up_to_there_and_can_go_on() {
    let sample = sample();
    let whole = events(&sample);
    let first_line = sample.find('\n').expect("a header") + 1;
    for cut in first_line..sample.len() {
        let mut reader = Reader::new(&sample.as_bytes()[..cut]).expect("a recording");
        let read: Vec<Event> = reader.by_ref().collect::<Result<_, _>>().expect("events");
        assert_eq!(read[..], whole[..read.len()], "cut at {cut}");
        let lines = sample.as_bytes()[..cut].iter().filter(|byte| **byte == b'\n').count() - 1;
        assert!(read.len() == lines || read.len() == lines + 1, "cut at {cut}");
        let whole_bytes = reader.whole_bytes() as usize;
        assert!(sample[..whole_bytes].ends_with('\n') && whole_bytes <= cut);
        assert_eq!(reader.is_cut_off(), whole_bytes < cut && read.len() == lines, "cut at {cut}");

        let left = sample.as_bytes()[..whole_bytes].to_vec();
        let last = events(&sample[..whole_bytes]).last().map_or(Duration::ZERO, |event| event.at);
        let mut recorder = Recorder::resume(left, 1 << 20, whole_bytes as u64, last);
        kept(recorder.output(seconds(60.0), Source::Stdout, b"again"));
        let resumed = finished(recorder, 61.0);
        assert_eq!(events(&resumed).last().expect("events").at, seconds(60.0));
        assert_eq!(reader.whole_time(), last);
    }
}

#[test]
fn files_that_are_no_recordings_are_refused_with_a_reason() {
    let refused = |text: &str| Reader::new(text.as_bytes()).expect_err(text).to_string();
    assert_eq!(refused(""), "the recording is empty");
    assert!(refused("hello\n").starts_with("this is no recording"));
    assert!(refused("{}\n").contains("it has no version"));
    assert!(refused("{\"version\":3}\n").contains("term"));
    assert_eq!(
        refused("{\"version\":2,\"width\":80,\"height\":24}\n"),
        "the recording is an asciicast of version 2; only version 3 can be read"
    );
}

#[test]
fn lines_that_are_no_events_are_an_error_with_their_number() {
    let header = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n";
    for bad in [
        "nonsense",
        "{}",
        "[1.0]",
        "[-1.0,\"o\",\"x\"]",
        "[1e300,\"o\",\"x\"]",
        "[1,\"r\",\"80\"]",
        "[1,\"r\",\"80x999999\"]",
        "[1,\"x\",\"no\"]",
        "[1,\"o\",5]",
        "[1,\"o\",\"x\",2]",
    ] {
        let cast = format!("{header}[1.0,\"o\",\"fine\"]\n{bad}\n[1.0,\"o\",\"never read\"]\n");
        let read: Vec<_> = Reader::new(cast.as_bytes()).expect("a header").collect();
        assert_eq!(read.len(), 2, "{bad}");
        let error = read[1].as_ref().expect_err(bad).to_string();
        assert!(error.starts_with("line 3 of the recording is not an event: "), "{error}");
    }
}

#[test]
fn comments_and_kinds_of_the_future_are_passed_over() {
    let cast = concat!(
        "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24,\"new\":1},\"newer\":[]}\n",
        "# a comment\n\n[1,\"z\",\"data\"]\n[1,\"y\",{\"a\":1}]\n[1.5,\"o\",\"x\"]"
    );
    let events = events(cast);
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].kind, EventKind::Other { code: "z".into(), data: "data".into() });
    assert_eq!(events[1].at, seconds(3.5));
}

#[test]
fn a_line_without_end_is_refused_before_it_fills_memory() {
    let header = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n";
    let cast = format!("{header}[1,\"o\",\"{}", "x".repeat(17 << 20));
    let error =
        Reader::new(cast.as_bytes()).expect("a header").next().expect("a line").expect_err("too long");
    assert!(matches!(error, CastError::LongLine { line: 2, .. }));
}

#[test]
fn version_2_has_absolute_times() {
    let sample = sample();
    let reader = Reader::new(sample.as_bytes()).expect("a recording");
    let v2 = String::from_utf8(to_v2(reader, Vec::new()).expect("converted")).expect("text");
    let expected = concat!(
        r##"{"version":2,"width":80,"height":24,"timestamp":1700000000,"idle_time_limit":2.5,"command":"/bin/sh","##,
        r##""title":"a \"title\"","env":{"SHELL":"/bin/sh","TERM":"xterm-256color"},"##,
        r##""theme":{"fg":"#ffffff","bg":"#000000","palette":"#000000:#ff0000"}}"##,
        "\n",
        "[0.250000, \"o\", \"$ é\\r\\n\\u001b[31m\"]\n",
        "[1.500000, \"i\", \"exit\\r\"]\n",
        "[1.500001, \"r\", \"100x50\"]\n",
        "[2.000000, \"m\", \"here\"]\n",
        "[2.000000, \"o\", \"bye\\r\\n\"]\n",
    );
    assert_eq!(v2, expected);
}

#[test]
fn a_transcript_is_what_was_shown() {
    let mut recorder = recorder(1 << 20);
    kept(recorder.output(seconds(1.0), Source::Stdout, b"$ make\r\na 1\r\nb 1\r\n"));
    kept(recorder.input(seconds(1.0), b"typed"));
    kept(recorder.output(seconds(2.0), Source::Stdout, b"\x1b[2Aa 2\r\nb 2\r\n\x1b[32mok\x1b[0m"));
    let cast = finished(recorder, 3.0);
    let reader = Reader::new(cast.as_bytes()).expect("a recording");
    let text = String::from_utf8(transcript(reader, Vec::new()).expect("a transcript")).expect("text");
    assert_eq!(text, "$ make\na 2\nb 2\nok\n");
}
