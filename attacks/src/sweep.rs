//! Every system call number against the golden list of those that must be denied.
//!
//! Single cases test what somebody thought of. The sweep finds the number that nobody did: a new call of a new
//! kernel, or a line that slipped into the allow-list.

use crate::sys::{Args, BAD};
use crate::syscalls::{Answer, ask};
use crate::{Case, Context, Outcome, case};
use std::collections::BTreeMap;

pub(crate) static CASES: &[Case] = &[
    case(
        "syscall-sweep",
        "kernel-surface",
        "Makes every system call, 0 to 480, and compares with the golden list of denied ones",
        &["seccomp"],
        sweep,
    ),
    case(
        "syscall-unassigned",
        "kernel-surface",
        "Makes calls with numbers far beyond the table, negative ones and ones with high bits",
        &["seccomp"],
        unassigned,
    ),
];

const LAST: i64 = 480;
const GOLDEN: &str = include_str!("../golden/x86_64-denied.txt");

/// Numbers that are not called: each would end, split or block the child, or leave something behind.
const NOT_CALLED: &[(i64, &str)] = &[
    (15, "rt_sigreturn: jumps to a frame that is not there"),
    (34, "pause: waits for ever"),
    (57, "fork: a second child"),
    (58, "vfork: a second child on the same stack"),
    (60, "exit"),
    (68, "msgget: would leave a queue behind"),
    (162, "sync: may take seconds"),
    (231, "exit_group"),
];

/// `(number, name)` of each call that must be denied.
fn golden() -> BTreeMap<i64, &'static str> {
    GOLDEN
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty())
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(number, name)| Some((number.parse().ok()?, name.trim())))
        .collect()
}

fn sweep(_: &Context) -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Outcome::Skipped("the golden list is for x86_64".to_owned());
    }
    let golden = golden();
    let (mut through, mut open) = (Vec::new(), 0);
    for nr in 0..=LAST {
        if NOT_CALLED.iter().any(|(skipped, _)| *skipped == nr) {
            continue;
        }
        let must_be_denied = golden.get(&nr);
        // Zeros as well for what must be denied: some calls answer ENOSYS to impossible arguments by themselves.
        let patterns: &[Args] = if must_be_denied.is_some() { &[BAD, [0; 6]] } else { &[BAD] };
        for pattern in patterns {
            let answer = ask(nr, *pattern);
            if let Answer::NotAsked(_) = answer {
                return Outcome::Skipped(format!("at number {nr}: {answer}"));
            }
            if answer.is_refusal() {
                continue;
            }
            open += 1;
            if let Some(name) = must_be_denied {
                through.push(format!("{nr} {name}: {answer}"));
                break;
            }
        }
    }
    crate::none_found(through, format!("{} denied as listed, {open} others answer", golden.len()))
}

fn unassigned(_: &Context) -> Outcome {
    let mut through = Vec::new();
    // The kernel looks at the low 32 bits only, so the last one is mount.
    for nr in [481, 511, 1000, 0xffff, i64::from(i32::MAX), -1, -2, 0x8000_0000, 0x1_0000_0000 | 165] {
        let answer = ask(nr, BAD);
        match answer {
            Answer::NotAsked(_) => return Outcome::Skipped(answer.to_string()),
            answer if !answer.is_refusal() => through.push(format!("{nr}: {answer}")),
            _ => {}
        }
    }
    crate::none_found(through, "none exists or all are denied")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_golden_line_is_understood() {
        let lines = GOLDEN.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert_eq!(golden().len(), lines);
        assert!(golden().keys().all(|nr| !NOT_CALLED.iter().any(|(skipped, _)| skipped == nr)));
    }
}
