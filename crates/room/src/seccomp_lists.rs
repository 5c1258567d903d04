//! Which system calls a room has: allowed, denied with EPERM, or decided by their arguments.

use super::{Action, Instruction, JEQ, JSET, always, jump, load_arg, load_arg_high, mask, ret};
use libc::*;
use workroom_sys::seccomp::LauncherKey;

/// The highest number that the lists speak of; everything above answers ENOSYS.
pub(super) const LAST: i64 = 469;

/// What ordinary programs need: files, memory, processes, time, sockets, signals, IPC of the room's own.
#[rustfmt::skip]
pub(super) const ALLOWED: &[i64] = &[
    SYS_read, SYS_write, SYS_open, SYS_close, SYS_stat, SYS_fstat, SYS_lstat, SYS_poll, SYS_lseek,
    SYS_mprotect, SYS_munmap, SYS_brk, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_pread64,
    SYS_pwrite64, SYS_readv, SYS_writev, SYS_access, SYS_pipe, SYS_select, SYS_sched_yield, SYS_mremap,
    SYS_msync, SYS_mincore, SYS_madvise, SYS_shmat, SYS_shmctl, SYS_dup, SYS_dup2, SYS_pause,
    SYS_nanosleep, SYS_getitimer, SYS_alarm, SYS_setitimer, SYS_getpid, SYS_sendfile, SYS_connect, SYS_accept,
    SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_shutdown, SYS_bind, SYS_listen, SYS_getsockname,
    SYS_getpeername, SYS_getsockopt, SYS_fork, SYS_vfork, SYS_execve, SYS_exit, SYS_wait4,
    SYS_kill, SYS_uname, SYS_semget, SYS_semop, SYS_semctl, SYS_shmdt, SYS_msgget, SYS_msgsnd, SYS_msgrcv,
    SYS_msgctl, SYS_fcntl, SYS_flock, SYS_fsync, SYS_fdatasync, SYS_truncate, SYS_ftruncate, SYS_getdents,
    SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_rename, SYS_mkdir, SYS_rmdir, SYS_creat, SYS_link, SYS_unlink,
    SYS_symlink, SYS_readlink, SYS_chmod, SYS_fchmod, SYS_chown, SYS_fchown, SYS_lchown, SYS_umask,
    SYS_gettimeofday, SYS_getrlimit, SYS_getrusage, SYS_sysinfo, SYS_times, SYS_ptrace, SYS_getuid,
    SYS_getgid, SYS_setuid, SYS_setgid, SYS_geteuid, SYS_getegid, SYS_setpgid, SYS_getppid, SYS_getpgrp,
    SYS_setsid, SYS_setreuid, SYS_setregid, SYS_getgroups, SYS_setgroups, SYS_setresuid, SYS_getresuid,
    SYS_setresgid, SYS_getresgid, SYS_getpgid, SYS_setfsuid, SYS_setfsgid, SYS_getsid, SYS_capget, SYS_capset,
    SYS_rt_sigpending, SYS_rt_sigtimedwait, SYS_rt_sigqueueinfo, SYS_rt_sigsuspend, SYS_sigaltstack,
    SYS_utime, SYS_statfs, SYS_fstatfs, SYS_getpriority, SYS_sched_setparam,
    SYS_sched_getparam, SYS_sched_setscheduler, SYS_sched_getscheduler, SYS_sched_get_priority_max,
    SYS_sched_get_priority_min, SYS_sched_rr_get_interval, SYS_mlock, SYS_munlock, SYS_mlockall,
    SYS_munlockall, SYS_arch_prctl, SYS_sync, SYS_gettid, SYS_readahead, SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr,
    SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_tkill, SYS_time, SYS_futex,
    SYS_sched_setaffinity, SYS_sched_getaffinity, SYS_get_thread_area, SYS_epoll_create, SYS_remap_file_pages,
    SYS_getdents64, SYS_set_tid_address, SYS_restart_syscall, SYS_semtimedop, SYS_fadvise64,
    SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_getoverrun, SYS_timer_delete,
    SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_exit_group, SYS_epoll_wait, SYS_epoll_ctl,
    SYS_tgkill, SYS_utimes, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedreceive, SYS_mq_notify,
    SYS_mq_getsetattr, SYS_waitid, SYS_ioprio_set, SYS_ioprio_get, SYS_inotify_init, SYS_inotify_add_watch,
    SYS_inotify_rm_watch, SYS_openat, SYS_mkdirat, SYS_fchownat, SYS_futimesat, SYS_newfstatat, SYS_unlinkat,
    SYS_renameat, SYS_linkat, SYS_symlinkat, SYS_readlinkat, SYS_fchmodat, SYS_faccessat, SYS_pselect6,
    SYS_ppoll, SYS_set_robust_list, SYS_get_robust_list, SYS_splice, SYS_tee, SYS_sync_file_range,
    SYS_vmsplice, SYS_utimensat, SYS_epoll_pwait, SYS_signalfd, SYS_timerfd_create, SYS_eventfd,
    SYS_fallocate, SYS_timerfd_settime, SYS_timerfd_gettime, SYS_accept4, SYS_signalfd4, SYS_eventfd2,
    SYS_epoll_create1, SYS_dup3, SYS_pipe2, SYS_inotify_init1, SYS_preadv, SYS_pwritev,
    SYS_rt_tgsigqueueinfo, SYS_recvmmsg, SYS_syncfs, SYS_sendmmsg, SYS_getcpu, SYS_sched_setattr,
    SYS_sched_getattr, SYS_getrandom, SYS_execveat,
    SYS_membarrier, SYS_mlock2, SYS_copy_file_range, SYS_preadv2, SYS_pwritev2, SYS_pkey_mprotect,
    SYS_pkey_alloc, SYS_pkey_free, SYS_statx, SYS_rseq, SYS_pidfd_send_signal, SYS_pidfd_open,
    SYS_close_range, SYS_openat2, SYS_faccessat2, SYS_epoll_pwait2, SYS_landlock_create_ruleset,
    SYS_landlock_add_rule, SYS_landlock_restrict_self, SYS_futex_waitv,
    451, // cachestat
    452, // fchmodat2
    453, // map_shadow_stack
    454, 455, 456, // futex_wake, futex_wait, futex_requeue
    462, // mseal
    463, 464, 465, 466, // setxattrat, getxattrat, listxattrat, removexattrat
];

/// Known and refused: EPERM says «not in here», where ENOSYS would say «not in this kernel».
#[rustfmt::skip]
pub(super) const DENIED: &[i64] = &[
    // The file tree's shape is decided outside.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_open_tree, SYS_move_mount, SYS_fsopen,
    SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr,
    467, // open_tree_attr
    // So are namespaces, clocks and names.
    SYS_setns, SYS_sethostname, SYS_setdomainname, SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime,
    SYS_adjtimex,
    // Kernel surfaces with a history.
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load,
    SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_fanotify_init, SYS_fanotify_mark, SYS_modify_ldt,
    SYS_memfd_secret, SYS_lookup_dcookie, SYS_iopl, SYS_ioperm, SYS_syslog, SYS_vhangup, SYS_acct,
    SYS_swapon, SYS_swapoff, SYS_reboot, SYS_quotactl, SYS_quotactl_fd, SYS_uselib, SYS_ustat, SYS_sysfs,
    SYS__sysctl, SYS_nfsservctl,
    // Reaching into other processes; ptrace stays, for debuggers on their own children.
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp, SYS_process_madvise,
    SYS_process_mrelease,
    // Placement of memory on a machine that is shared.
    SYS_move_pages, SYS_migrate_pages, SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy,
    SYS_set_mempolicy_home_node,
];

type Check = fn(LauncherKey) -> Vec<Instruction>;

/// Calls that are allowed for some arguments only.
pub(super) const CHECKED: &[(i64, Check)] = &[
    (SYS_clone, |_| no_flags(NAMESPACE_FLAGS)),
    // A library that sees no clone3 falls back to clone, whose flags a filter can read.
    (SYS_clone3, |key| launcher_only(key, ENOSYS)),
    (SYS_unshare, unshare_flags),
    (SYS_socket, |_| socket_families()),
    (SYS_socketpair, |_| only(0, &[AF_UNIX as u32], EAFNOSUPPORT)),
    (SYS_ioctl, |_| never(1, &[TIOCSTI as u32, TIOCLINUX as u32, TIOCSETD as u32, TIOCCONS as u32])),
    // A debugger turns randomisation off for what it debugs; 0xffffffff only asks.
    (SYS_personality, |_| only(0, &[0, 0x0040000, 0xffff_ffff], EPERM)),
    (SYS_setpriority, |_| own_priority_only()),
    (SYS_prctl, |_| prctl_options()),
    (SYS_mknod, |_| no_devices(1)),
    (SYS_mknodat, |_| no_devices(2)),
    (SYS_setrlimit, |_| pretend_core_limit()),
    (SYS_setsockopt, |_| no_socket_filters()),
    // Huge pages are a pool of the machine's that no limit of the room counts.
    (SYS_mmap, |_| no_bits(3, MAP_HUGETLB as u32, ENOMEM)),
    (SYS_memfd_create, |_| no_bits(1, MFD_HUGETLB, ENOMEM)),
    (SYS_shmget, |_| no_bits(2, SHM_HUGETLB as u32, ENOMEM)),
    // A whiteout is a device node.
    (SYS_renameat2, |_| no_bits(4, RENAME_WHITEOUT, EINVAL)),
    (SYS_prlimit64, |_| own_limits_only()),
];

/// What is checked besides where the room writes to a host directory.
pub(super) const NO_SETUID_FILES: &[(i64, Check)] = &[
    (SYS_chmod, |_| no_bits(1, SETUID_BITS, EPERM)),
    (SYS_fchmod, |_| no_bits(1, SETUID_BITS, EPERM)),
    (SYS_fchmodat, |_| no_bits(2, SETUID_BITS, EPERM)),
    (FCHMODAT2, |_| no_bits(2, SETUID_BITS, EPERM)),
    (SYS_creat, |_| no_bits(1, SETUID_BITS, EPERM)),
    (SYS_open, |_| no_setuid_creation(1, 2)),
    (SYS_openat, |_| no_setuid_creation(2, 3)),
    (SYS_mknod, |_| no_setuid_device(1)),
    (SYS_mknodat, |_| no_setuid_device(2)),
    // Its mode is in memory, where a filter cannot look. Clerks open with it, and make nothing by it.
    (SYS_openat2, |key| launcher_only(key, ENOSYS)),
];

const FCHMODAT2: i64 = 452;
const SETUID_BITS: u32 = S_ISUID | S_ISGID;
const CLONE_NEWTIME: u32 = 0x80;
const TIOCSETD: u64 = 0x5423;
const NAMESPACE_FLAGS: u32 = (CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET) as u32;

fn no_flags(flags: u32) -> Vec<Instruction> {
    no_bits(0, flags, EPERM)
}

fn no_bits(argument: u32, bits: u32, otherwise: i32) -> Vec<Instruction> {
    vec![load_arg(argument), jump(JSET, bits, 0, 1), ret(Action::Errno(otherwise)), ret(Action::Allow)]
}

/// The mode counts only where a file may be made.
fn no_setuid_creation(flags_argument: u32, mode_argument: u32) -> Vec<Instruction> {
    // O_TMPFILE is two bits; the other one also means that a directory is opened.
    let creates = (O_CREAT | (O_TMPFILE & !O_DIRECTORY)) as u32;
    let mut check = vec![load_arg(flags_argument), jump(JSET, creates, 1, 0), ret(Action::Allow)];
    check.extend(no_bits(mode_argument, SETUID_BITS, EPERM));
    check
}

fn no_setuid_device(mode_argument: u32) -> Vec<Instruction> {
    let mut check = vec![load_arg(mode_argument), jump(JSET, SETUID_BITS, 0, 1), ret(Action::Errno(EPERM))];
    check.extend(no_devices(mode_argument));
    check
}

/// Packet filters on sockets come out of a pool that the whole machine shares.
fn no_socket_filters() -> Vec<Instruction> {
    const SO_ATTACH_BPF: u32 = 50;
    const SO_ATTACH_REUSEPORT_CBPF: u32 = 51;
    const SO_ATTACH_REUSEPORT_EBPF: u32 = 52;
    vec![
        load_arg(1),
        jump(JEQ, SOL_SOCKET as u32, 0, 5),
        load_arg(2),
        jump(JEQ, SO_ATTACH_FILTER as u32, 4, 0),
        jump(JEQ, SO_ATTACH_BPF, 3, 0),
        jump(JEQ, SO_ATTACH_REUSEPORT_CBPF, 2, 0),
        jump(JEQ, SO_ATTACH_REUSEPORT_EBPF, 1, 0),
        ret(Action::Allow),
        ret(Action::Errno(EPERM)),
    ]
}

/// No namespaces but those that each command is started in, of cgroups and of host names; and those only for the
/// launcher.
fn unshare_flags(key: LauncherKey) -> Vec<Instruction> {
    let own = (CLONE_NEWCGROUP | CLONE_NEWUTS) as u32;
    let others = (NAMESPACE_FLAGS | CLONE_NEWTIME) & !own;
    let mut check = vec![
        load_arg(0),
        jump(JSET, others, 0, 1),
        ret(Action::Errno(EPERM)),
        jump(JSET, own, 1, 0),
        ret(Action::Allow),
    ];
    check.extend(launcher_only(key, EPERM));
    check
}

/// Calls that only the launcher may make: it gives, in arguments that the kernel does not look at, a number that
/// no command can know.
fn launcher_only(key: LauncherKey, otherwise: i32) -> Vec<Instruction> {
    let [first, second] = key.words();
    let parts = [
        (load_arg(4), first as u32),
        (load_arg_high(4), (first >> 32) as u32),
        (load_arg(5), second as u32),
        (load_arg_high(5), (second >> 32) as u32),
    ];
    let mut check = Vec::new();
    for (index, (load, word)) in parts.into_iter().enumerate() {
        // Past the rest of the comparisons and the permission behind them.
        check.extend([load, jump(JEQ, word, 0, (2 * (parts.len() - 1 - index) + 1) as u8)]);
    }
    check.extend([ret(Action::Allow), ret(Action::Errno(otherwise))]);
    check
}

/// The kernel's memory for filters is one pool for the whole machine; a command adds none to it.
fn prctl_options() -> Vec<Instruction> {
    let mut check = vec![load_arg(0), jump(JEQ, PR_SET_SECCOMP as u32, 0, 1), ret(Action::Errno(EINVAL))];
    check.extend(never(0, &[PR_SET_MM as u32]));
    check
}

fn only(argument: u32, values: &[u32], otherwise: i32) -> Vec<Instruction> {
    let mut check = vec![load_arg(argument)];
    for (index, value) in values.iter().enumerate() {
        check.push(jump(JEQ, *value, (values.len() - index) as u8, 0));
    }
    check.extend([ret(Action::Errno(otherwise)), ret(Action::Allow)]);
    check
}

fn never(argument: u32, values: &[u32]) -> Vec<Instruction> {
    let mut check = vec![load_arg(argument)];
    for (index, value) in values.iter().enumerate() {
        check.push(jump(JEQ, *value, (values.len() - index) as u8, 0));
    }
    check.extend([ret(Action::Allow), ret(Action::Errno(EPERM))]);
    check
}

fn no_devices(mode_argument: u32) -> Vec<Instruction> {
    vec![
        load_arg(mode_argument),
        mask(S_IFMT),
        jump(JEQ, S_IFCHR, 2, 0),
        jump(JEQ, S_IFBLK, 1, 0),
        ret(Action::Allow),
        ret(Action::Errno(EPERM)),
    ]
}

/// Unix sockets of every kind; TCP and UDP; route netlink. AF_VSOCK above all is out: it crosses network
/// namespaces. The rest answer as if the kernel did not have them.
fn socket_families() -> Vec<Instruction> {
    const KIND: u32 = 0xf;
    vec![
        load_arg(0),
        jump(JEQ, AF_UNIX as u32, 14, 0),
        jump(JEQ, AF_INET as u32, 5, 0),
        jump(JEQ, AF_INET6 as u32, 4, 0),
        jump(JEQ, AF_NETLINK as u32, 0, 2),
        load_arg(2),
        jump(JEQ, NETLINK_ROUTE as u32, 9, 8),
        always(7),
        // TCP and UDP, by default protocol or by name.
        load_arg(1),
        mask(KIND),
        jump(JEQ, SOCK_STREAM as u32, 0, 2),
        load_arg(2),
        always(4),
        jump(JEQ, SOCK_DGRAM as u32, 0, 1),
        always(3),
        ret(Action::Errno(EAFNOSUPPORT)),
        ret(Action::Allow),
        // STREAM: the protocol is loaded.
        jump(JEQ, IPPROTO_TCP as u32, 4, 2),
        // DGRAM.
        load_arg(2),
        jump(JEQ, IPPROTO_UDP as u32, 2, 0),
        jump(JEQ, 0, 1, 0),
        ret(Action::Errno(EPROTONOSUPPORT)),
        ret(Action::Allow),
    ]
}

/// Of this process alone: the guest and the launcher may have the same uid.
fn own_priority_only() -> Vec<Instruction> {
    vec![
        load_arg(0),
        jump(JEQ, PRIO_PROCESS, 0, 2),
        load_arg(1),
        jump(JEQ, 0, 1, 0),
        ret(Action::Errno(EPERM)),
        ret(Action::Allow),
    ]
}

/// Core dumps are off by a limit of one byte, which also keeps a host's crash handler from being started;
/// lowering it to nothing would bring the handler back. Setting it succeeds and changes nothing.
fn pretend_core_limit() -> Vec<Instruction> {
    vec![load_arg(0), jump(JEQ, RLIMIT_CORE, 0, 1), ret(Action::Errno(0)), ret(Action::Allow)]
}

/// The same for the newer call, which also could change the limits of other processes of the same uid.
fn own_limits_only() -> Vec<Instruction> {
    vec![
        load_arg(0),
        jump(JEQ, 0, 1, 0),
        ret(Action::Errno(EPERM)),
        load_arg(1),
        jump(JEQ, RLIMIT_CORE, 0, 5),
        load_arg(2),
        jump(JEQ, 0, 0, 2),
        load_arg_high(2),
        jump(JEQ, 0, 1, 0),
        ret(Action::Errno(0)),
        ret(Action::Allow),
    ]
}
