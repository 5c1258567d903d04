//! How fast streams pass through redaction: `cargo run --release -p workroom-vault --example redaction_speed`.
//!
//! A hundred secrets of ordinary sizes, texts of several kinds, pieces of 64 KiB as from a pipe. One line a text. The time is
//! that of the processor, so that a busy machine gives nearly the same figures.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use workroom_vault::{RedactStream, Redactor, SecretName, SecretValue, SharedRedactor};

const CHUNK: usize = 64 * 1024;
const TEXT: usize = 16 * 1024 * 1024;
const AT_LEAST: Duration = Duration::from_secs(1);

fn main() {
    let mut random = Random(0x5eed);
    let ordinary = secrets(&mut random);
    let mut with_a_short_one = secrets(&mut random);
    with_a_short_one.push("pa55".into());
    println!("{:<44} {:>10} {:>12}", "text", "MB/s", "out/in");
    for (set, values) in [("100 secrets", &ordinary), ("and one of 4 bytes", &with_a_short_one)] {
        let started = cpu_time();
        let redactor = SharedRedactor::new(compile(values));
        println!("{set}: compiled in {:.1} ms", (cpu_time() - started).as_secs_f64() * 1e3);
        measure("  a log", &redactor, &log(&mut random, None));
        measure("  a log with a secret in each 4 KiB", &redactor, &log(&mut random, Some(values)));
        measure("  base64", &redactor, &of_alphabet(&mut random, BASE64));
        measure("  hex", &redactor, &of_alphabet(&mut random, b"0123456789abcdef"));
        measure("  random bytes", &redactor, &random.bytes(TEXT));
        let starts: Vec<u8> = values.iter().flat_map(|value| value.bytes().take(12)).collect();
        measure("  starts of secrets, nothing else", &redactor, &starts.repeat(TEXT / starts.len()));
        let whole: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        measure("  secrets, nothing else", &redactor, &whole.repeat(TEXT / whole.len()));
    }
    let tedious = SharedRedactor::new(compile(&["a".repeat(60_000), "a".repeat(60_000) + "b"]));
    measure("the worst case: one letter, everywhere", &tedious, &[b'a'; 256 * 1024]);
    measure("no secrets: a log", &SharedRedactor::new(Redactor::none()), &log(&mut random, None));
}

fn measure(what: &str, redactor: &SharedRedactor, text: &[u8]) {
    let (mut bytes, mut written, started) = (0usize, 0usize, cpu_time());
    let mut out = Vec::new();
    while (cpu_time() - started) < AT_LEAST {
        let mut stream = RedactStream::new(redactor);
        for chunk in text.chunks(CHUNK) {
            out.clear();
            stream.push(chunk, &mut out);
            written += out.len();
        }
        out.clear();
        stream.finish(&mut out);
        written += out.len();
        bytes += text.len();
    }
    let rate = bytes as f64 / (cpu_time() - started).as_secs_f64() / 1e6;
    println!("{what:<44} {rate:>10.0} {:>12.3}", written as f64 / bytes as f64);
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn compile(values: &[String]) -> Redactor {
    let secrets: Vec<(SecretName, SecretValue)> = values
        .iter()
        .enumerate()
        .map(|(number, value)| {
            let name = SecretName::new(format!("SECRET_{number}")).expect("a name");
            (name, SecretValue::new(value.as_str()).expect("a value"))
        })
        .collect();
    Redactor::new(secrets.iter().map(|(name, value)| (name, value)))
}

const ALPHANUMERIC: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Passwords, tokens with the prefixes of their makers, addresses of databases, and a few keys of several lines.
fn secrets(random: &mut Random) -> Vec<String> {
    (0..100)
        .map(|number| match number % 10 {
            0..3 => random.text(ALPHANUMERIC, 16),
            3 | 4 => format!("ghp_{}", random.text(ALPHANUMERIC, 36)),
            5 | 6 => format!("sk-proj-{}", random.text(ALPHANUMERIC, 48)),
            7 => format!(
                "postgres://app:{}@db.example:5432/app?sslmode=require",
                random.text(ALPHANUMERIC, 20)
            ),
            8 => format!("{}!{}$", random.text(ALPHANUMERIC, 9), random.text(ALPHANUMERIC, 6)),
            _ => {
                let lines: Vec<String> = (0..24).map(|_| random.text(BASE64, 64)).collect();
                format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
            }
        })
        .collect()
}

fn log(random: &mut Random, secrets: Option<&[String]>) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "request",
        "GET",
        "/v1/sessions",
        "https://example.com/path?q=a%20b",
        "200",
        "ms",
        "compiling",
        "warning:",
        "unused",
        "variable",
        "postgres",
        "connected",
        "user=app",
        "INFO",
        "cache",
        "[worker-3]",
    ];
    let (mut text, mut since) = (Vec::with_capacity(TEXT + 4096), 0);
    while text.len() < TEXT {
        let before = text.len();
        text.extend(format!("2026-01-01T00:00:00.{:06}Z", random.below(1_000_000)).bytes());
        for _ in 0..4 + random.below(10) {
            text.push(b' ');
            text.extend(WORDS[random.below(WORDS.len())].bytes());
        }
        if let Some(secrets) = secrets.filter(|_| since > 4096) {
            text.extend(secrets[random.below(secrets.len())].bytes());
            since = 0;
        }
        text.push(b'\n');
        since += text.len() - before;
    }
    text
}

fn of_alphabet(random: &mut Random, alphabet: &[u8]) -> Vec<u8> {
    random.text(alphabet, TEXT).into_bytes()
}

/// SplitMix64: the same texts in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    fn text(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length).map(|_| char::from(alphabet[self.below(alphabet.len())])).collect()
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
