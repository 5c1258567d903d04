//! The system-call wall: an allow-list for the native architecture, compiled to a binary search.
//!
//! A filter that tests one number after another takes six times as long to install as a search tree, and
//! every command pays for the walk (docs/decisions/0004-own-seccomp-compiler.md). Numbers that no list
//! names answer ENOSYS, as a kernel without them would, so that libraries fall back.

use workroom_sys::seccomp::{Instruction, LauncherKey};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the system-call lists are written for x86_64 only");

#[path = "seccomp_lists.rs"]
mod lists;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Allow,
    Errno(i32),
    Kill,
    /// Decided by the arguments: the index of a check in [`lists::CHECKED`] or, behind its end, in
    /// [`lists::NO_SETUID_FILES`].
    Check(usize),
}

/// What a particular room adds to the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Strictness {
    /// The room writes to a host directory: files that it makes there must not be setuid or setgid on the host,
    /// where the room's `nosuid` does not reach.
    pub(crate) no_setuid_files: bool,
}

/// The filter that the launcher enters and all that it starts inherits. What only the launcher may do takes its
/// key: a second filter for each command would cost more than starting it does.
pub(crate) fn program(strictness: Strictness, key: LauncherKey) -> Vec<Instruction> {
    let mut program = vec![
        load(OFFSET_ARCH),
        jump(JEQ, AUDIT_ARCH_X86_64, 1, 0),
        ret(Action::Kill),
        load(OFFSET_NR),
        // x32 calls have a high bit set and would slip past checks written for 64-bit numbers.
        jump(JGE, X32_BIT, 0, 1),
        ret(Action::Kill),
    ];
    program.extend(tree(&intervals(strictness), key));
    program
}

/// The whole number space as runs of the same action: (first number, action), sorted, from 0 on.
fn intervals(strictness: Strictness) -> Vec<(u32, Action)> {
    let mut table = vec![Action::Errno(libc::ENOSYS); lists::LAST as usize + 2];
    for &number in lists::ALLOWED {
        table[number as usize] = Action::Allow;
    }
    for &number in lists::DENIED {
        table[number as usize] = Action::Errno(libc::EPERM);
    }
    for (index, (number, _)) in lists::CHECKED.iter().enumerate() {
        table[*number as usize] = Action::Check(index);
    }
    if strictness.no_setuid_files {
        for (index, (number, _)) in lists::NO_SETUID_FILES.iter().enumerate() {
            table[*number as usize] = Action::Check(lists::CHECKED.len() + index);
        }
    }
    let mut runs: Vec<(u32, Action)> = Vec::new();
    for (number, action) in table.into_iter().enumerate() {
        if runs.last().is_none_or(|(_, last)| *last != action) {
            runs.push((number as u32, action));
        }
    }
    runs
}

/// A search tree over the runs. The number is in the accumulator.
fn tree(runs: &[(u32, Action)], key: LauncherKey) -> Vec<Instruction> {
    if let [(_, action)] = runs {
        return match *action {
            Action::Check(index) => match lists::CHECKED.get(index) {
                Some((_, check)) => check(key),
                None => lists::NO_SETUID_FILES[index - lists::CHECKED.len()].1(key),
            },
            action => vec![ret(action)],
        };
    }
    let (low, high) = runs.split_at(runs.len() / 2);
    let (pivot, low, high) = (high[0].0, tree(low, key), tree(high, key));
    let mut node = match u8::try_from(low.len()) {
        Ok(distance) => vec![jump(JGE, pivot, distance, 0)],
        // A conditional jump reaches 255 instructions; an unconditional one reaches all.
        Err(_) => vec![jump(JGE, pivot, 0, 1), always(low.len() as u32)],
    };
    node.extend(low);
    node.extend(high);
    node
}

const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const X32_BIT: u32 = 0x4000_0000;
const JEQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JGE: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JSET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;

fn load(offset: u32) -> Instruction {
    Instruction { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

/// Loads the low half of an argument: the kernel reads an `int` from there, whatever the high half holds.
fn load_arg(index: u32) -> Instruction {
    load(16 + 8 * index)
}

fn load_arg_high(index: u32) -> Instruction {
    load(20 + 8 * index)
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

fn always(distance: u32) -> Instruction {
    Instruction { code: (libc::BPF_JMP | libc::BPF_JA) as u16, jt: 0, jf: 0, k: distance }
}

fn mask(k: u32) -> Instruction {
    Instruction { code: (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16, jt: 0, jf: 0, k }
}

fn ret(action: Action) -> Instruction {
    let k = match action {
        Action::Allow => libc::SECCOMP_RET_ALLOW,
        Action::Errno(errno) => libc::SECCOMP_RET_ERRNO | errno as u32,
        Action::Kill | Action::Check(_) => libc::SECCOMP_RET_KILL_PROCESS,
    };
    Instruction { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel would.
    fn run(program: &[Instruction], number: u32, args: [u64; 6], arch: u32) -> u32 {
        let mut data = [0u32; 16];
        data[0] = number;
        data[1] = arch;
        for (index, arg) in args.iter().enumerate() {
            data[4 + 2 * index] = *arg as u32;
            data[5 + 2 * index] = (*arg >> 32) as u32;
        }
        let (mut at, mut accumulator) = (0, 0u32);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            let mut branch = |taken: bool| at += usize::from(if taken { jt } else { jf });
            match u32::from(code) {
                c if c == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => accumulator = data[k as usize / 4],
                c if c == libc::BPF_ALU | libc::BPF_AND => accumulator &= k,
                c if c == libc::BPF_JMP | libc::BPF_JA => at += k as usize,
                c if c == libc::BPF_JMP | libc::BPF_JEQ => branch(accumulator == k),
                c if c == libc::BPF_JMP | libc::BPF_JGE => branch(accumulator >= k),
                c if c == libc::BPF_JMP | libc::BPF_JSET => branch(accumulator & k != 0),
                c if c == libc::BPF_RET => return k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    const KEY: LauncherKey = LauncherKey::from_words([0x1111_2222_3333_4444, 0x5555_6666_7777_8888]);

    fn verdict(number: i64, args: [u64; 6]) -> u32 {
        run(&program(Strictness::default(), KEY), number as u32, args, AUDIT_ARCH_X86_64)
    }

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

    #[test]
    fn the_tree_agrees_with_the_lists_for_every_number() {
        for number in 0..2000u32 {
            let got = verdict(number.into(), [0; 6]);
            if lists::ALLOWED.contains(&(number.into())) {
                assert_eq!(got, ALLOW, "{number}");
            } else if lists::DENIED.contains(&(number.into())) {
                assert_eq!(got, EPERM, "{number}");
            } else if !lists::CHECKED.iter().any(|(checked, _)| *checked == i64::from(number)) {
                assert_eq!(got, ENOSYS, "{number}");
            }
        }
    }

    #[test]
    fn no_number_is_on_two_lists() {
        let mut all: Vec<i64> = lists::ALLOWED.to_vec();
        all.extend(lists::DENIED);
        all.extend(lists::CHECKED.iter().map(|(number, _)| *number));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn foreign_architectures_and_x32_are_killed() {
        let kill = libc::SECCOMP_RET_KILL_PROCESS;
        let i386 = 0x4000_0003;
        let launcher = program(Strictness::default(), KEY);
        assert_eq!(run(&launcher, libc::SYS_read as u32, [0; 6], i386), kill);
        assert_eq!(verdict(i64::from(X32_BIT) | libc::SYS_read, [0; 6]), kill);
    }

    #[test]
    fn arguments_decide_where_they_must() {
        let ns = |flag: i32| [flag as u64, 0, 0, 0, 0, 0];
        assert_eq!(verdict(libc::SYS_clone, ns(libc::SIGCHLD)), ALLOW);
        for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWPID] {
            assert_eq!(verdict(libc::SYS_clone, ns(flag | libc::SIGCHLD)), EPERM);
            assert_eq!(verdict(libc::SYS_unshare, ns(flag)), EPERM);
        }
        assert_eq!(verdict(libc::SYS_unshare, ns(libc::CLONE_FILES)), ALLOW);
        let own = libc::CLONE_NEWCGROUP | libc::CLONE_NEWUTS;
        let [first, second] = KEY.words();
        let with_key = |flags: i32| [flags as u64, 0, 0, 0, first, second];
        assert_eq!(verdict(libc::SYS_unshare, with_key(own)), ALLOW);
        assert_eq!(verdict(libc::SYS_unshare, with_key(own | libc::CLONE_NEWIPC)), EPERM);
        assert_eq!(verdict(libc::SYS_clone3, with_key(0)), ALLOW);
        for flag in [libc::CLONE_NEWCGROUP, libc::CLONE_NEWUTS, own] {
            assert_eq!(verdict(libc::SYS_unshare, ns(flag)), EPERM);
        }
        assert_eq!(verdict(libc::SYS_clone3, [0; 6]), ENOSYS);
        // Each half of each word counts.
        for bit in [0, 31, 32, 63] {
            for (first, second) in [(first ^ 1 << bit, second), (first, second ^ 1 << bit)] {
                let almost = [own as u64, 0, 0, 0, first, second];
                assert_eq!(verdict(libc::SYS_unshare, almost), EPERM);
                assert_eq!(verdict(libc::SYS_clone3, almost), ENOSYS);
            }
        }
        assert_eq!(verdict(libc::SYS_seccomp, [0; 6]), ENOSYS);
        let einval = libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32;
        assert_eq!(verdict(libc::SYS_prctl, ns(libc::PR_SET_SECCOMP)), einval);
        assert_eq!(verdict(libc::SYS_prctl, ns(libc::PR_SET_NAME)), ALLOW);

        let socket = |family: i32, kind: i32, protocol: i32| {
            verdict(libc::SYS_socket, [family as u64, kind as u64, protocol as u64, 0, 0, 0])
        };
        assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0), ALLOW);
        assert_eq!(socket(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP), ALLOW);
        assert_eq!(socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0), ALLOW);
        assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE), ALLOW);
        for (family, kind, protocol) in [
            (libc::AF_INET, libc::SOCK_RAW, 0),
            (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
            (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
            (libc::AF_VSOCK, libc::SOCK_STREAM, 0),
            (libc::AF_PACKET, libc::SOCK_RAW, 0),
            (libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
        ] {
            assert_ne!(socket(family, kind, protocol), ALLOW, "{family} {kind} {protocol}");
        }

        let sti = libc::TIOCSTI;
        assert_eq!(verdict(libc::SYS_ioctl, [0, sti, 0, 0, 0, 0]), EPERM);
        assert_eq!(verdict(libc::SYS_ioctl, [0, sti | 1 << 40, 0, 0, 0, 0]), EPERM, "high bits are ignored");
        assert_eq!(verdict(libc::SYS_ioctl, [0, libc::TCGETS, 0, 0, 0, 0]), ALLOW);

        assert_eq!(verdict(libc::SYS_mknod, [0, libc::S_IFIFO.into(), 0, 0, 0, 0]), ALLOW);
        assert_eq!(verdict(libc::SYS_mknod, [0, u64::from(libc::S_IFBLK) | 0o600, 0, 0, 0, 0]), EPERM);
        assert_eq!(verdict(libc::SYS_mknodat, [0, 0, u64::from(libc::S_IFCHR), 0, 0, 0]), EPERM);
        assert_eq!(verdict(libc::SYS_personality, [0x40000, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(verdict(libc::SYS_personality, [0x400000, 0, 0, 0, 0, 0]), EPERM);
    }

    #[test]
    fn no_setuid_files_where_the_room_writes_to_the_host() {
        let strict = program(Strictness { no_setuid_files: true }, KEY);
        let verdict = |number: i64, args| run(&strict, number as u32, args, AUDIT_ARCH_X86_64);
        let (setuid, setgid, plain) = (0o4755u64, 0o2755u64, 0o755u64);
        for mode in [setuid, setgid] {
            assert_eq!(verdict(libc::SYS_chmod, [0, mode, 0, 0, 0, 0]), EPERM);
            assert_eq!(verdict(libc::SYS_fchmodat, [0, 0, mode, 0, 0, 0]), EPERM);
            assert_eq!(verdict(452, [0, 0, mode, 0, 0, 0]), EPERM, "fchmodat2");
            assert_eq!(verdict(libc::SYS_openat, [0, 0, libc::O_CREAT as u64, mode, 0, 0]), EPERM);
            assert_eq!(verdict(libc::SYS_open, [0, libc::O_TMPFILE as u64, mode, 0, 0, 0]), EPERM);
            assert_eq!(verdict(libc::SYS_mknodat, [0, 0, mode, 0, 0, 0]), EPERM);
        }
        assert_eq!(verdict(libc::SYS_chmod, [0, plain, 0, 0, 0, 0]), ALLOW);
        assert_eq!(verdict(libc::SYS_openat, [0, 0, 0, setuid, 0, 0]), ALLOW, "no file is made");
        assert_eq!(verdict(libc::SYS_openat2, [0; 6]), ENOSYS);
        let [fifth, sixth] = KEY.words();
        assert_eq!(verdict(libc::SYS_openat2, [0, 0, 0, 0, fifth, sixth]), ALLOW, "a clerk");
        assert_eq!(verdict(libc::SYS_mknodat, [0, 0, u64::from(libc::S_IFBLK), 0, 0, 0]), EPERM);
    }
}
