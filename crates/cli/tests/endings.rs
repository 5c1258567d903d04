//! Endings, gentle and violent: whatever is killed and whenever, nothing of a room is left.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::fence::{Fence, fenced, gated};
use support::pty::Watch;
use support::traces::{Machine, Traces, guest_of, spawner_of};
use support::{Caller, Dice, code, collect, for_each_privilege, installed, settle, wait};

/// Leaves every kind of process behind that does not want to go.
const DAEMONS: &str = "
    setsid -f sleep 1000
    setsid -f sh -c 'setsid -f sleep 1000; exec sleep 1000'
    setsid -f sh -c 'trap \"\" TERM INT HUP QUIT; while :; do sleep 1; done'
    (setsid sh -c 'kill -STOP $$; sleep 1000' &)
    nohup sleep 1000 >/dev/null 2>&1 &
    sleep 1000 & kill -STOP $!
    ps -e >/dev/null 2>&1
    echo left";

#[test]
fn daemons_end_with_their_room() {
    for_each_privilege(|caller| {
        let fence = Fence::around(caller);
        let machine = Machine::now();
        for (options, more, status) in
            [(&[][..], "exit 5", 5), (&[], "kill -9 $$", 137), (&["--timeout", "500ms"], "sleep 1000", 124)]
        {
            let mut traces = Traces::new(caller, fence.as_ref());
            let mut options = options.to_vec();
            options.extend(["--env", &traces.marker]);
            let script = format!("{DAEMONS}; {more}");
            let mut run = fenced(caller, fence.as_ref(), &options, &["sh", "-c", &script]);
            // Streams of their own, so that nothing waits for what the daemons hold.
            let outcome = collect(traces.start(&mut run));
            assert_eq!((outcome.code, outcome.out.as_str()), (status, "left\n"), "{outcome:?}");
            // Not "soon": `workroom` is the last to go.
            traces.gone().unwrap_or_else(|left| panic!("after {more:?}: {left}"));
        }
        machine.is_as_before();
    });
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Caller,
    Spawner,
    Guest,
    CallerAndSpawner,
    /// As a supervisor would that has had enough.
    CallersGroup,
}

const VICTIMS: [Victim; 5] =
    [Victim::Caller, Victim::Spawner, Victim::Guest, Victim::CallerAndSpawner, Victim::CallersGroup];

fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may have ended just now.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Waits until the process is there and its time has come; `None` if the caller ended first.
fn await_victim(child: &mut Child, due: Instant, find: impl Fn(i32) -> Option<i32>) -> Option<i32> {
    loop {
        let found = find(child.id() as i32);
        let left = due.saturating_duration_since(Instant::now());
        if found.is_some() && left.is_zero() {
            return found;
        }
        if found.is_none() && child.try_wait().expect("wait").is_some() {
            return None;
        }
        // Precise, and for milliseconds only.
        std::thread::sleep(left.min(Duration::from_micros(200)));
    }
}

fn strike(child: &mut Child, victim: Victim, due: Instant) {
    let found = match victim {
        Victim::Caller | Victim::CallersGroup => await_victim(child, due, Some),
        Victim::Guest => await_victim(child, due, guest_of),
        Victim::Spawner | Victim::CallerAndSpawner => await_victim(child, due, spawner_of),
    };
    if victim == Victim::CallerAndSpawner {
        kill(child.id() as i32);
    }
    match found {
        Some(pid) if victim == Victim::CallersGroup => {
            let group = Pid::from_raw(pid).expect("a pid");
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        Some(pid) => kill(pid),
        None => {}
    }
}

/// What runs in a room whose end is sudden.
const STUBBORN: &str = "trap '' TERM; setsid -f sleep 1000; sleep 1000 & kill -STOP $!; echo up; sleep 1000";

fn round(caller: &Caller, fence: Option<&Fence>, victim: Victim, delay: Duration) {
    let mut traces = Traces::new(caller, fence);
    let options = ["--env", &traces.marker.clone()];
    let mut gate = gated(caller, fence, &options, &["sh", "-c", STUBBORN]);
    let mut child = traces.start(gate.stdout(Stdio::null()));
    let mut err = Watch::new(child.stderr.take().expect("stderr"));
    err.wait_for("ready\n");
    child.stdin.as_mut().expect("stdin").write_all(b"go\n").expect("go");
    strike(&mut child, victim, Instant::now() + delay);

    let status = code(wait(&mut child));
    if matches!(victim, Victim::Caller | Victim::CallerAndSpawner | Victim::CallersGroup) {
        assert_eq!(status, 137);
    } else {
        let said = err.rest();
        assert_eq!((status, said.lines().count()), (125, 1), "it says that the room is gone: {said:?}");
        traces.gone().unwrap_or_else(|left| panic!("it ended, and {left}"));
    }
    if victim == Victim::CallerAndSpawner {
        settle(Duration::from_secs(2), || traces.processes_gone());
        // Nobody was left to remove the groups: the next one does.
        let outcome = collect(fenced(caller, fence, &[], &["true"]).spawn().expect("start"));
        assert_eq!(outcome.good(), "");
        traces.gone().unwrap_or_else(|left| panic!("after the next run {left}"));
    } else {
        traces.are_gone();
    }
}

fn violence(rounds: usize) {
    let dice = std::cell::RefCell::new(Dice::new());
    for_each_privilege(|caller| {
        let fence = Fence::around(caller);
        let machine = Machine::now();
        for number in 0..rounds {
            let victim = VICTIMS[number % VICTIMS.len()];
            let delay = Duration::from_micros(dice.borrow_mut().below(15_000));
            println!("round {number}: {victim:?} after {delay:?}");
            round(caller, fence.as_ref(), victim, delay);
        }
        machine.is_as_before();
    });
}

#[test]
fn nothing_is_left_whoever_is_killed_and_when() {
    violence(60);
}

#[test]
#[ignore = "takes minutes"]
fn soak_nothing_is_left_whoever_is_killed_and_when() {
    violence(1000);
}

/// Starts a room and waits until its command runs.
fn standing_room(caller: &Caller, fence: Option<&Fence>, traces: &mut Traces<'_>) -> Child {
    let options = ["--env", &traces.marker.clone()];
    let mut run = fenced(caller, fence, &options, &["sh", "-c", STUBBORN]);
    let mut child = traces.start(&mut run);
    Watch::new(child.stdout.take().expect("stdout")).wait_for("up\n");
    child
}

#[test]
fn a_standing_room_ends_with_each_of_its_keepers() {
    for_each_privilege(|caller| {
        let fence = Fence::around(caller);
        for victim in VICTIMS {
            let mut traces = Traces::new(caller, fence.as_ref());
            let mut child = standing_room(caller, fence.as_ref(), &mut traces);
            assert!(traces.processes().len() >= 6, "the room is seen: {:?}", traces.processes());
            assert_eq!(fence.is_some(), fence.as_ref().is_some_and(|fence| !fence.rooms().is_empty()));
            strike(&mut child, victim, Instant::now());
            let status = code(wait(&mut child));
            assert!(matches!(status, 125 | 137), "{victim:?}: {status}");
            settle(Duration::from_secs(2), || traces.processes_gone());
            if victim == Victim::CallerAndSpawner {
                let next = collect(fenced(caller, fence.as_ref(), &[], &["true"]).spawn().expect("start"));
                assert_eq!(next.good(), "");
            }
            traces.are_gone();
        }
    });
}

#[test]
fn a_sweep_leaves_living_rooms_alone() {
    for_each_privilege(|caller| {
        let fence = Fence::around(caller);
        let mut traces = Traces::new(caller, fence.as_ref());
        let mut child = standing_room(caller, fence.as_ref(), &mut traces);
        let groups = fence.as_ref().map(Fence::rooms);
        for _ in 0..5 {
            let next = collect(fenced(caller, fence.as_ref(), &[], &["true"]).spawn().expect("start"));
            assert_eq!(next.good(), "");
        }
        assert_eq!(fence.as_ref().map(Fence::rooms), groups);
        assert_eq!(child.try_wait().expect("wait"), None, "the room still stands");
        kill(child.id() as i32);
        wait(&mut child);
        traces.are_gone();
    });
}

#[test]
fn a_launcher_that_is_killed_takes_nothing_with_it() {
    for_each_privilege(|caller| {
        // Where the command has the launcher's uid it can end it; where not, it is refused. One that does so
        // before the launcher has said that it runs is told that it never did.
        let outcome = caller
            .sh(&[], "for p in 2 3; do [ $p = $$ ] || kill -9 $p; done 2>/dev/null; kill -9 -1; echo on");
        let told = outcome.code == 125 && outcome.err.lines().count() == 1;
        assert!(told || outcome.code == 0 && outcome.out == "on\n", "{outcome:?}");
        assert_eq!(caller.sh(&[], "kill -9 1; echo on").out, "on\n", "the guest is not for commands to end");
    });
}

#[test]
fn a_fork_bomb_ends_with_its_room() {
    for_each_privilege(|caller| {
        if !installed("perl") {
            return;
        }
        let limit = ["--pids", "64"];
        assert_eq!(caller.layer(&limit, "pids"), "enforced", "no bomb without a limit");
        let fence = Fence::around(caller);
        if caller.is_root() && fence.is_none() {
            println!("skipped: no outer cap can be had");
            return;
        }
        if let Some(fence) = &fence {
            fence.cap_processes(500);
        }
        let mut traces = Traces::new(caller, fence.as_ref());
        let options = ["--pids", "64", "--env", &traces.marker.clone()];
        let bomb = ["perl", "-e", "while (1) { fork; select undef, undef, undef, 0.02 }"];
        let mut run = if caller.is_root() {
            fenced(caller, fence.as_ref(), &options, &bomb)
        } else {
            // An outer cap on all that this user has, which is nothing else if it is the test's own.
            let cap = if caller.ids.is_some() { 500 } else { 4000 };
            let run = caller.run(&options, &bomb);
            let mut capped = caller.command("prlimit");
            capped.arg(format!("--nproc={cap}")).arg(run.get_program()).args(run.get_args());
            capped
        };
        let mut child = traces.start(&mut run);
        let most = std::cell::Cell::new(0);
        settle(Duration::from_secs(30), || {
            most.set(most.get().max(traces.processes().len()));
            if most.get() >= 60 { Ok(()) } else { Err(format!("only {} processes", most.get())) }
        });
        for _ in 0..20 {
            most.set(most.get().max(traces.processes().len()));
        }
        // With the caller, the spawner, the guest and the launcher.
        assert!(most.get() <= 64 + 4, "{} processes at once", most.get());
        kill(child.id() as i32);
        wait(&mut child);
        traces.are_gone();
    });
}

#[test]
fn many_rooms_at_once_come_and_go() {
    for_each_privilege(|caller| {
        let fence = Fence::around(caller);
        let traces = Traces::new(caller, fence.as_ref());
        std::thread::scope(|scope| {
            for worker in 0..6 {
                let (fence, marker) = (fence.as_ref(), &traces.marker);
                scope.spawn(move || {
                    for turn in 0..5 {
                        let words = format!("room {worker}.{turn}");
                        let run = fenced(caller, fence, &["--env", marker], &["echo", &words]).spawn();
                        assert_eq!(collect(run.expect("start")).good(), format!("{words}\n"));
                    }
                });
            }
        });
        traces.gone().unwrap_or_else(|left| panic!("{left}"));
    });
}
