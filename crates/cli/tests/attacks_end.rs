//! How the attack suite ends: when it is interrupted, and when nobody reads what it says, nothing of it is left.

mod support;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, File};
use std::process::Stdio;
use support::traces::{Traces, processes, spawner_of};
use support::{Caller, PATIENCE, collect, for_each_privilege, settle};
use workroom_attacks::{Context, Outcome, run_probe};

/// What the suite has laid out on the machine under this number, by probes that are not in any room.
fn laid_out(number: u32) -> Vec<&'static str> {
    let name = format!("/workroom-bait-{number:08x}");
    let context = Context {
        host_sysv_shm_key: Some(number.cast_signed()),
        host_posix_shm: Some(name.clone()),
        host_mq: Some(name),
        ..Context::default()
    };
    let probes = ["sysv-shm", "sysv-sem", "sysv-msg", "posix-shm", "posix-mq"];
    let found = |probe: &&str| matches!(run_probe(probe, &context), Some(Outcome::Breached(_)));
    probes.into_iter().filter(found).collect()
}

/// The number by which a process names what it lays out: the key of the segment that it has made.
fn number_of(maker: u32) -> Option<u32> {
    let segments = fs::read_to_string("/proc/sysvipc/shm").expect("read the list of segments");
    segments.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let made = fields.get(4)?.parse() == Ok(maker);
        made.then(|| fields.first()?.parse::<i32>().ok()).flatten().map(i32::cast_unsigned)
    })
}

fn attack(caller: &Caller, options: &[&str]) -> std::process::Command {
    let mut command = caller.command(caller.program());
    command.args(["doctor", "--attack"]).args(options);
    command
}

#[test]
fn an_interrupted_attack_leaves_nothing() {
    for_each_privilege(|caller| {
        for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
            let mut traces = Traces::new(caller, None);
            // Probes that take their time.
            let child =
                traces.start(&mut attack(caller, &["--case", "zombies-10000,endless-output,cpu-spin"]));
            let attacker = Pid::from_child(&child);
            let rooms = || {
                let spawner = spawner_of(attacker.as_raw_nonzero().get());
                processes().iter().filter(|process| Some(process.parent) == spawner).count()
            };
            settle(PATIENCE, || match rooms() {
                2.. => Ok(()),
                rooms => Err(format!("{rooms} rooms")),
            });
            let number = number_of(child.id()).expect("a segment");
            assert!(laid_out(number).len() >= 4, "{:?} with {number:08x}", laid_out(number));
            match signal {
                // As a terminal does it.
                Signal::INT => kill_process_group(attacker, signal).expect("send"),
                _ => kill_process(attacker, signal).expect("send"),
            }
            let outcome = collect(child);
            assert_eq!(laid_out(number), [""; 0], "after {signal:?}");
            assert_eq!((outcome.code, outcome.out.as_str()), (status, ""), "{}", outcome.err);
            assert!(outcome.err.contains("interrupted"), "{}", outcome.err);
            assert_eq!(number_of(attacker.as_raw_nonzero().get().cast_unsigned()), None);
            let left: Vec<_> = fs::read_dir(caller.path("tmp")).expect("read").flatten().collect();
            assert!(left.is_empty(), "{left:?}");
            traces.are_gone();
        }
    });
}

#[test]
fn output_that_cannot_be_written_is_no_crash() {
    for_each_privilege(|caller| {
        let mut full = attack(caller, &["--case", "vsock"]);
        full.stdout(File::create("/dev/full").expect("open /dev/full"));
        let outcome = collect(full.spawn().expect("start"));
        assert_eq!(outcome.code, 125, "{}", outcome.err);
        assert_eq!(outcome.err.lines().count(), 1, "{}", outcome.err);
        assert!(outcome.err.contains("cannot be written"), "{}", outcome.err);

        for json in [&[][..], &["--json"]] {
            for (more, status) in [(&[][..], 0), (&["--without", "seccomp"], 1)] {
                let options = [&["--case", "vsock"], json, more].concat();
                let mut command = attack(caller, &options);
                let (reader, writer) = std::io::pipe().expect("pipe");
                command.stdout(Stdio::from(writer));
                drop(reader);
                let outcome = collect(command.spawn().expect("start"));
                assert_eq!((outcome.code, outcome.err.as_str()), (status, ""), "{options:?}");
            }
        }
    });
}
