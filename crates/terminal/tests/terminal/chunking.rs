//! However a stream is cut into pieces, it is the same screen and the same text; whatever it is, nothing breaks.

use crate::support::{PROGRAMS, Random, describe, fixture, plain, plain_options, size};
use std::time::Duration;
use workroom_terminal::cast::{Header, Reader, Recorder, Source};
use workroom_terminal::{Blanks, PlainOptions, Screen, Size, TextLog};

/// Streams of real programs, and made-up ones that no program would write.
fn streams() -> Vec<Vec<u8>> {
    let mut streams: Vec<Vec<u8>> = PROGRAMS.iter().map(|name| fixture(&format!("{name}.bin"))).collect();
    let mut random = Random(1);
    streams.extend((0..40).map(|_| nonsense(&mut random, 300)));
    streams
}

/// Sequences that do something, with numbers of all sizes, between text that is hard to place.
fn nonsense(random: &mut Random, parts: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..parts {
        match random.below(8) {
            0 | 1 => {
                let text = random.pick(&[
                    "a",
                    "text ",
                    "界",
                    "🦀",
                    "e\u{301}",
                    "\u{200d}",
                    "é",
                    "\t",
                    "wide 界界界 ",
                ]);
                bytes.extend_from_slice(text.as_bytes());
            }
            2 => {
                let control: &str = random.pick(&[
                    "\n", "\r", "\r\n", "\x08", "\x0b", "\x0e", "\x0f", "\x18", "\x7f", "\0", "\x07",
                ]);
                bytes.extend_from_slice(control.as_bytes());
            }
            3..=5 => {
                let marker = random.pick(&["", "", "", "?", ">", "=", "!"]);
                let number = |random: &mut Random| match random.below(4) {
                    0 => String::new(),
                    1 => random.below(10).to_string(),
                    2 => random.pick(&["1049", "47", "2004", "25", "6", "7", "4", "1048", "1"]).to_owned(),
                    _ => random.below(70_000).to_string(),
                };
                let (first, second) = (number(random), number(random));
                let between = random.pick(&["", "", "", " ", "$"]);
                let last = char::from(b'@' + random.below(63) as u8);
                bytes.extend_from_slice(format!("\x1b[{marker}{first};{second}{between}{last}").as_bytes());
            }
            6 => {
                let sequence: &str = random.pick(&[
                    "\x1b7",
                    "\x1b8",
                    "\x1bM",
                    "\x1bD",
                    "\x1bE",
                    "\x1b#8",
                    "\x1b(0",
                    "\x1b(B",
                    "\x1b)0",
                    "\x1bH",
                    "\x1bc",
                    "\x1b]0;title\x07",
                    "\x1b]2;cut",
                    "\x1b\\",
                    "\x1bPq",
                    "\x1b_x\x1b\\",
                    "\u{9b}5m",
                    "\u{9c}",
                    "\u{85}",
                ]);
                bytes.extend_from_slice(sequence.as_bytes());
            }
            _ => bytes.extend((0..random.below(6)).map(|_| random.next() as u8)),
        }
    }
    bytes
}

#[test]
fn any_cutting_gives_the_same_screen() {
    let mut random = Random(2);
    for stream in streams() {
        let mut whole = Screen::new(size());
        whole.feed(&stream);
        let history: Vec<_> = whole.history().collect();
        let (seen, known) = (whole.snapshot(Blanks::Keep), describe(&mut whole));
        for _ in 0..8 {
            let mut screen = Screen::new(size());
            random.cut(&stream).into_iter().for_each(|piece| screen.feed(piece));
            assert_eq!(screen.snapshot(Blanks::Keep), seen);
            assert!(screen.history().eq(history.iter().cloned()));
            assert_eq!(describe(&mut screen), known);
        }
    }
}

#[test]
fn any_cutting_gives_the_same_text() {
    let mut random = Random(3);
    let held = || PlainOptions { hold_back: 24, ..plain_options() };
    let short = || PlainOptions { max_line: 30, ..PlainOptions::default() };
    for stream in streams() {
        for options in [plain_options(), held(), short(), PlainOptions::default()] {
            let whole = plain(options.clone(), [stream.as_slice()]);
            for _ in 0..4 {
                assert_eq!(plain(options.clone(), random.cut(&stream)), whole);
            }
            assert_eq!(plain(options, stream.chunks(1)), whole);
        }
    }
}

#[test]
fn any_cutting_gives_the_same_log_and_recording() {
    let mut random = Random(4);
    for stream in streams() {
        let text = plain(plain_options(), [stream.as_slice()]);
        let mut log = TextLog::new(1 << 20, plain_options());
        let mut recorder = Recorder::new(Vec::new(), &Header::new(80, 24), 1 << 24).expect("a recorder");
        for (tick, piece) in random.cut(&stream).into_iter().enumerate() {
            log.feed(piece);
            let _ =
                recorder.output(Duration::from_millis(tick as u64), Source::Stdout, piece).expect("written");
        }
        log.finish();
        assert_eq!(log.since(0).text, text);
        assert_eq!(log.position(), text.len() as u64);

        let cast = recorder.finish(Duration::from_secs(3600)).expect("written");
        let reader = Reader::new(cast.as_slice()).expect("a recording");
        let played = workroom_terminal::replay::screen_at(reader, Duration::MAX).expect("played");
        let mut screen = Screen::new(size());
        screen.feed(String::from_utf8_lossy(&stream).as_bytes());
        assert_eq!(played.snapshot(Blanks::Keep), screen.snapshot(Blanks::Keep));
    }
}

#[test]
fn nonsense_and_resizes_break_nothing() {
    let mut random = Random(5);
    for _ in 0..30 {
        let mut screen = Screen::new(Size::MIN);
        for _ in 0..30 {
            screen.feed(&nonsense(&mut random, 30));
            screen.resize(Size::nearest(random.below(120) as u16, random.below(60) as u16));
            let size = screen.size();
            let lines = screen.lines(Blanks::Keep);
            assert_eq!(lines.len(), usize::from(size.rows()));
            let cursor = screen.cursor();
            assert!(cursor.column < size.cols() && cursor.row < size.rows());
            screen.take_answers();
        }
        screen.whole_text();
    }
}
