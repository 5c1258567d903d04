//! One command, from its spec to `execve`: what happens between clone and the program's first instruction.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use workroom_proto::{LaunchError, LaunchStage};
use workroom_sys::clone::Borrower;
use workroom_sys::exec::{ExecStrings, close_from_on_exec, execve, place_fd, take_terminal};
use workroom_sys::namespace::{Namespaces, unshare_with};
use workroom_sys::seccomp::LauncherKey;
use workroom_types::CommandSpec;

/// What every command of a room has in common.
pub(crate) struct LaunchRules {
    pub(crate) birth_group: Option<OwnedFd>,
    pub(crate) key: LauncherKey,
    pub(crate) switches_users: bool,
    pub(crate) drop_capabilities: bool,
    pub(crate) cgroup_namespace: bool,
}

/// Starts the command and returns its pid once its program runs.
pub(crate) fn launch(
    borrower: &mut Borrower,
    rules: &LaunchRules,
    spec: &CommandSpec,
    stdio: &[BorrowedFd<'_>],
) -> Result<i32, LaunchError> {
    let failed = |stage, errno: i32| LaunchError { stage, errno };
    let invalid = |_| failed(LaunchStage::Execute, Errno::INVAL.raw_os_error());
    let strings = |list: &[Vec<u8>]| list.iter().cloned().map(CString::new).collect::<Result<Vec<_>, _>>();
    let argv = strings(&spec.argv).map_err(invalid)?;
    let image = Image {
        programs: candidates(spec).map_err(invalid)?,
        script_argv: ExecStrings::new(
            [c"/bin/sh".to_owned()].into_iter().chain(argv.iter().cloned()).collect(),
        ),
        argv: ExecStrings::new(argv),
        env: ExecStrings::new(strings(&spec.env).map_err(invalid)?),
        cwd: CString::new(spec.cwd.clone()).map_err(invalid)?,
    };
    let birth = rules.birth_group.as_ref().map(AsFd::as_fd);
    let mut complaint = None;
    let pid = borrower
        .clone_sibling(birth, rules.key, &mut || {
            complaint = Some(become_command(rules, spec, stdio, &image));
        })
        .map_err(|error| failed(LaunchStage::Clone, error.raw_os_error().unwrap_or(0)))?;
    // The new process has executed its program by now, or has left its complaint in our memory.
    complaint.map_or(Ok(pid), Err)
}

/// All that is needed to become the program, prepared before the clone so that nothing is allocated after.
struct Image {
    programs: Vec<CString>,
    argv: ExecStrings,
    /// For a file that is no binary: the shell, then the original arguments.
    script_argv: ExecStrings,
    env: ExecStrings,
    cwd: CString,
}

/// Runs in the new process; returns only if it could not become the command. Allocates nothing.
fn become_command(
    rules: &LaunchRules,
    spec: &CommandSpec,
    stdio: &[BorrowedFd<'_>],
    image: &Image,
) -> LaunchError {
    let attempt = || -> Result<(), (LaunchStage, io::Error)> {
        let identity = |error: io::Error| (LaunchStage::Identity, error);
        let os = |error: Errno| identity(error.into());
        // A group of its own, which signals are sent to. A session too only where a terminal asks for one: each makes
        // the kernel set up a group of the scheduler's, for all processors.
        if spec.terminal.is_some() {
            rustix::process::setsid().map_err(os)?;
        } else {
            rustix::process::setpgid(None, None).map_err(os)?;
        }
        // The stdio descriptors are all above 2: the launcher's own 0, 1 and 2 are /dev/null. A fourth is placed when
        // the others are, so that it does not matter which of them it replaces.
        for (target, source) in stdio.iter().enumerate() {
            place_fd(source.as_raw_fd(), target as i32).map_err(identity)?;
        }
        if spec.terminal.is_some() {
            take_terminal(0).map_err(identity)?;
        }
        close_from_on_exec(stdio.len() as u32).map_err(identity)?;
        if rules.cgroup_namespace {
            unshare_with(Namespaces::CGROUP, rules.key).map_err(identity)?;
        }
        if rules.switches_users {
            let (uid, gid) = (Uid::from_raw(spec.user.id()), Gid::from_raw(spec.user.id()));
            rustix::thread::set_thread_groups(&[]).map_err(os)?;
            rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(os)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(os)?;
        }
        if rules.drop_capabilities {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).map_err(os)?;
        }
        // After the switch of user, so that a directory the user may not enter is refused.
        rustix::process::chdir(image.cwd.as_c_str())
            .map_err(|e| (LaunchStage::WorkingDirectory, e.into()))?;
        Err((LaunchStage::Execute, execute(image)))
    };
    let (stage, error) = match attempt() {
        Ok(()) => (LaunchStage::Execute, io::Error::from(io::ErrorKind::Other)),
        Err(failure) => failure,
    };
    LaunchError { stage, errno: error.raw_os_error().unwrap_or(0) }
}

/// Tries each candidate as a shell would: a missing one is passed over, one that may not be executed is
/// remembered, and a file of text is given to `/bin/sh`.
fn execute(image: &Image) -> io::Error {
    let mut outcome = io::Error::from(Errno::NOENT);
    for program in &image.programs {
        let error = execve(program, &image.argv, &image.env);
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => {}
            Some(Errno::NOEXEC) if is_text(program) => {
                return execve(c"/bin/sh", &image.script_argv, &image.env);
            }
            Some(Errno::ACCESS) => outcome = error,
            _ => return error,
        }
    }
    outcome
}

/// Whether a file that the kernel does not execute is a script, judged as bash does: no NUL in the beginning of its first line.
fn is_text(program: &CStr) -> bool {
    let mut beginning = [0u8; 128];
    let read = rustix::fs::open(program, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut beginning));
    let Ok(read) = read else { return false };
    !beginning[..read].iter().take_while(|byte| **byte != b'\n').any(|byte| *byte == 0)
}

/// Where the program may be: itself if it names a path, else in each directory of the command's own PATH.
fn candidates(spec: &CommandSpec) -> Result<Vec<CString>, std::ffi::NulError> {
    let name = spec.argv.first().map(Vec::as_slice).unwrap_or_default();
    if name.is_empty() || name.contains(&b'/') {
        return Ok(vec![CString::new(name)?]);
    }
    let path = spec.env.iter().find_map(|entry| entry.strip_prefix(b"PATH=".as_slice()));
    path.unwrap_or(b"/usr/bin:/bin")
        .split(|&byte| byte == b':')
        .map(|dir| {
            let dir = if dir.is_empty() { b"." } else { dir };
            CString::new([dir, b"/", name].concat())
        })
        .collect()
}
