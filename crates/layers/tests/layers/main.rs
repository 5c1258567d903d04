//! Layers, from the outside: real rooms write them, real workers look into them.
//!
//! Every test runs in a process of its own, as root runs the tests twice: as root and as an ordinary user.

mod copying;
mod diffing;
mod exporting;
mod merging;
mod stacks;
mod support;

use std::process::ExitCode;
use support::Test;

fn main() -> ExitCode {
    // This very program is what spawners are started from.
    workroom_room::run_if_spawner();
    let tests: Vec<Test> =
        [stacks::TESTS, copying::TESTS, diffing::TESTS, merging::TESTS, exporting::TESTS].concat();
    support::run(&tests)
}
