//! Runs probes by hand: `probe list`, `probe CASE [CONTEXT-JSON]`, with `-` to read the context from stdin.
//!
//! Exit status: 0 held, 1 breached, 2 skipped, 64 wrong usage.

use std::io::Read;
use std::process::ExitCode;
use workroom_attacks::{Context, Outcome, cases, run_probe};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["list"] => {
            for case in cases() {
                println!("{}\t{}\t{}\t{}", case.name, case.class, case.guards.join(","), case.tries);
            }
            ExitCode::SUCCESS
        }
        [name] => probe(name, ""),
        [name, "-"] => {
            let mut text = String::new();
            match std::io::stdin().read_to_string(&mut text) {
                Ok(_) => probe(name, &text),
                Err(error) => usage(&format!("cannot read the context from stdin: {error}")),
            }
        }
        [name, context] => probe(name, context),
        _ => usage("usage: probe list | probe CASE [CONTEXT-JSON | -]"),
    }
}

fn probe(name: &str, context: &str) -> ExitCode {
    let context = match context.trim() {
        "" => Context::default(),
        json => match serde_json::from_str(json) {
            Ok(context) => context,
            Err(error) => return usage(&format!("the context is not valid: {error}")),
        },
    };
    let Some(outcome) = run_probe(name, &context) else {
        return usage(&format!("no case is called {name:?}; see `probe list`"));
    };
    println!("{name}: {outcome}");
    ExitCode::from(match outcome {
        Outcome::Held(_) => 0,
        Outcome::Breached(_) => 1,
        Outcome::Skipped(_) => 2,
    })
}

fn usage(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(64)
}
