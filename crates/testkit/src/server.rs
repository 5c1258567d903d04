//! A real `workroom serve` with a state of its own, which ends with everything that it started.

use crate::http::Http;
use crate::leaks::{groups_of, left_in, processes, sessions_in};
use crate::session::TestSession;
use crate::user::User;
use crate::wait::{PATIENCE, PAUSE, eventually, settle, within};
use crate::{Process, unique};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::time::Instant;
use workroom_client::{Client, Endpoint};
use workroom_types::CreateSession;

/// A server to be.
pub struct Setup<'a> {
    user: &'a User,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    config: String,
    umask: Option<u32>,
    state: Option<PathBuf>,
    /// A server of so many slots, and of nothing else.
    slots: Option<u32>,
    /// A program, with its arguments, that starts the server.
    starter: Vec<String>,
}

impl<'a> Setup<'a> {
    pub fn of(user: &'a User) -> Setup<'a> {
        let (arguments, environment, config) = (Vec::new(), Vec::new(), String::new());
        Setup {
            user,
            arguments,
            environment,
            config,
            umask: None,
            state: None,
            slots: None,
            starter: Vec::new(),
        }
    }

    /// More options of `workroom serve`.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The configuration file, as TOML.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.config = toml.to_owned();
        self
    }

    #[must_use]
    pub fn umask(mut self, umask: u32) -> Self {
        self.umask = Some(umask);
        self
    }

    /// A state directory other than a new one.
    #[must_use]
    pub fn state(mut self, state: &Path) -> Self {
        self.state = Some(state.to_owned());
        self
    }

    /// Starts the server by way of another program, which gets it as its last arguments.
    #[must_use]
    pub fn started_by(mut self, starter: &[&str]) -> Self {
        self.starter = starter.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// `workroom slots`, whose callers have no token.
    #[must_use]
    pub fn slots(mut self, count: u32) -> Self {
        self.slots = Some(count);
        self
    }

    #[track_caller]
    pub fn start(self) -> Server<'a> {
        let name = unique();
        let config = self.user.make_file(&format!("config-{name}.toml"), &self.config);
        let mut state = self.state.clone().unwrap_or_else(|| self.user.make_dir("states").join(&name));
        if self.slots.is_some() {
            state = state.join("state");
        }
        let mut server = Server {
            setup: self,
            config,
            state,
            running: None,
            groups: Vec::new(),
            log: Arc::default(),
            at: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: String::new(),
        };
        server.begin();
        server
    }
}

/// A server that listens; see [`Server::of`] and [`Setup`].
pub struct Server<'a> {
    setup: Setup<'a>,
    config: PathBuf,
    state: PathBuf,
    running: Option<Child>,
    /// The process group of every server that this has been: its spawner and guests are in it too.
    groups: Vec<i32>,
    log: Arc<Mutex<String>>,
    at: SocketAddr,
    token: String,
}

impl<'a> Server<'a> {
    /// With every default.
    #[track_caller]
    pub fn of(user: &'a User) -> Server<'a> {
        Setup::of(user).start()
    }

    pub fn user(&self) -> &'a User {
        self.setup.user
    }

    /// A file of a session's workspace, as the machine has it.
    pub fn file_of(&self, session: &TestSession, name: &str) -> PathBuf {
        self.state.join("layers").join(&session.id).join("fs/workspace").join(name)
    }

    #[track_caller]
    pub fn await_file(&self, session: &TestSession, name: &str) {
        let path = self.file_of(session, name);
        settle(|| if path.exists() { Ok(()) } else { Err(format!("there is no {name}")) });
    }

    pub fn state(&self) -> &Path {
        &self.state
    }

    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// The first admin token.
    pub fn token(&self) -> &str {
        &self.token
    }

    pub fn socket(&self) -> PathBuf {
        self.state.join("workroom.sock")
    }

    pub fn pid(&self) -> i32 {
        self.running.as_ref().map_or(0, |child| child.id() as i32)
    }

    /// All that it has logged so far, over all its lives.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A new client over TCP with the first admin token.
    pub fn client(&self) -> Client {
        self.client_with(&self.token)
    }

    pub fn client_with(&self, token: &str) -> Client {
        let endpoint = Endpoint::Tcp { host: self.at.ip().to_string(), port: self.at.port() };
        Client::new(endpoint, Some(token.to_owned()))
    }

    /// A new client on the unix socket, who is whoever runs the tests.
    pub fn local_client(&self) -> Client {
        Client::new(Endpoint::Unix(self.socket()), None)
    }

    /// Requests as they are on the wire, over TCP, with the first admin token unless told otherwise.
    pub fn http(&self) -> Http {
        let http = Http::tcp(self.at, &self.token);
        if self.token.is_empty() { http.as_nobody() } else { http }
    }

    /// The same on the unix socket, without a token.
    pub fn local_http(&self) -> Http {
        Http::unix(&self.socket())
    }

    /// `workroom VERB …` as the server's user, which finds this server.
    pub fn cli(&self, arguments: &[&str]) -> Command {
        let mut command = self.user().command(self.user().program());
        command.env("WORKROOM_STATE", &self.state).args(arguments);
        command
    }

    /// A new session with a room and every default.
    #[track_caller]
    pub fn session(&self) -> impl Future<Output = TestSession> {
        self.session_with(CreateSession::default())
    }

    #[track_caller]
    pub fn session_with(&self, request: CreateSession) -> impl Future<Output = TestSession> {
        let client = self.client();
        within("a session", async move {
            let (session, _) = client.create(&request, None).await.expect("a session");
            TestSession::new(client, session.id)
        })
    }

    /// A new session, said as the API has it.
    #[track_caller]
    pub fn session_like(&self, request: serde_json::Value) -> impl Future<Output = TestSession> {
        self.session_with(serde_json::from_value(request).expect("a session's fields"))
    }

    /// Ends the server as nothing can be prepared for. Rooms go on.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Asks the server to end, and waits until it has.
    pub fn stop(&mut self) -> ExitStatus {
        self.end(Signal::TERM).expect("a server that runs")
    }

    /// Another server on the same state, after this one was ended or to replace it.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        self.begin();
    }

    /// Another server on the same state that does not get far: it is killed after this time, ready or not.
    pub fn start_and_kill_after(&mut self, time: Duration) {
        self.kill();
        let mut command = self.command();
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.process_group(0).spawn().expect("start a server");
        self.groups.push(child.id() as i32);
        std::thread::sleep(time);
        let _ = child.kill();
        let _ = child.wait();
    }

    fn end(&mut self, signal: Signal) -> Option<ExitStatus> {
        let mut child = self.running.take()?;
        let _ = rustix::process::kill_process(Pid::from_child(&child), signal);
        let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let ended = pidfd.is_ok_and(|pidfd| {
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            let polled = rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience));
            polled.is_ok_and(|ready| ready > 0)
        });
        if !ended {
            let _ = child.kill();
            assert!(std::thread::panicking(), "the server did not end after {signal:?}:\n{}", self.log());
        }
        child.wait().ok()
    }

    #[track_caller]
    fn begin(&mut self) {
        let mut command = self.command();
        let mut child = command.process_group(0).spawn().expect("start a server");
        self.groups.push(child.id() as i32);
        let (stdout, stderr) = (child.stdout.take().expect("stdout"), child.stderr.take().expect("stderr"));
        self.running = Some(child);
        let log = self.log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
            }
        });
        let has_token = self.setup.slots.is_none();
        let told = await_announcement(stdout, has_token);
        let Some((at, token)) = told else { panic!("the server said no address:\n{}", self.log()) };
        self.at = at;
        if !has_token {
            return;
        }
        let token = fs::read_to_string(&token).unwrap_or_else(|error| panic!("{token}: {error}"));
        self.token = token.trim().to_owned();
    }

    fn command(&self) -> Command {
        let user = self.user();
        let mut command = match (self.setup.umask, self.setup.starter.as_slice()) {
            (None, []) => user.command(user.program()),
            (None, [starter, arguments @ ..]) => {
                let mut command = user.command(starter);
                command.args(arguments).arg(user.program());
                command
            }
            (Some(umask), _) => {
                let mut shell = user.command("/bin/sh");
                shell.args(["-c", &format!("umask {umask:o}; exec \"$@\""), "umask"]).arg(user.program());
                shell
            }
        };
        match self.setup.slots {
            None => command.args(["serve", "--listen", "127.0.0.1:0", "--state"]).arg(&self.state),
            Some(count) => {
                command.args(["slots", "--listen", "127.0.0.1:0", "--slots", &count.to_string()]);
                command.arg("--data-dir").arg(self.state.parent().expect("a data directory"))
            }
        };
        command.args(&self.setup.arguments).env("WORKROOM_CONFIG", &self.config);
        command.envs(self.setup.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Processes of this server's rooms, and of servers that it was: all but the server and its spawner.
    pub fn room_processes(&self) -> Vec<Process> {
        let server = self.pid();
        let spawners: Vec<i32> = processes()
            .iter()
            .filter(|process| process.parent == server)
            .map(|process| process.pid)
            .collect();
        let own = |process: &Process| {
            self.groups.contains(&process.group) || self.user().is_alone() && process.uid == self.user().uid()
        };
        let keepers = |pid: i32| pid == server || spawners.contains(&pid);
        processes().into_iter().filter(|process| own(process) && !keepers(process.pid)).collect()
    }

    /// Nothing of any session is left: no directory, no group, no process. What is deleted at leisure is waited
    /// for.
    #[track_caller]
    pub fn expect_no_leaks(&self) -> impl Future<Output = ()> {
        eventually(async || self.leaks())
    }

    pub fn leaks(&self) -> Result<(), String> {
        match left_in(&self.state) {
            left if left.is_empty() => {}
            left => return Err(format!("left in the state directory: {left:?}")),
        }
        match self.room_processes() {
            left if left.is_empty() => {}
            left => return Err(format!("processes are left: {left:?}")),
        }
        match groups_of(&sessions_in(&self.state)) {
            left if left.is_empty() => Ok(()),
            left => Err(format!("groups are left: {left:?}")),
        }
    }

    /// Ends the rooms of a session as nothing can be prepared for, also while there is no server.
    pub fn end_room_of(&self, session: &str) {
        let rooms = fs::read_dir(self.state.join("rooms")).into_iter().flatten().flatten();
        for room in rooms.filter(|room| room.file_name().to_string_lossy().starts_with(session)) {
            let (_, guest) = workroom_room::call_guest(&room.path()).expect("its guest");
            rustix::process::pidfd_send_signal(&guest, Signal::KILL).expect("killed");
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            let ended = rustix::event::poll(&mut [PollFd::new(&guest, PollFlags::IN)], Some(&patience));
            assert!(ended.is_ok_and(|ready| ready > 0), "a killed room goes on");
        }
    }

    /// The guests that live, by the sockets that they listen on; killed.
    fn end_rooms(&self) {
        for room in fs::read_dir(self.state.join("rooms")).into_iter().flatten().flatten() {
            if let Ok((_, guest)) = workroom_room::call_guest(&room.path()) {
                let _ = rustix::process::pidfd_send_signal(&guest, Signal::KILL);
            }
        }
        for process in self.room_processes() {
            if let Some(pid) = Pid::from_raw(process.pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// The address and the token's file that a server says when it is ready.
fn await_announcement(stdout: ChildStdout, has_token: bool) -> Option<(SocketAddr, String)> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout);
        let (mut at, mut line) = (None, String::new());
        while lines.read_line(&mut line).is_ok_and(|count| count > 0) {
            match line.trim_end().split_once(' ') {
                Some(("listening", place)) => {
                    let address = place.strip_prefix("http://").and_then(|address| address.parse().ok());
                    at = at.or(address);
                    if !has_token {
                        let _ = tell.send(at.map(|at| (at, String::new())));
                    }
                }
                Some(("token", path)) => {
                    let _ = tell.send(at.map(|at| (at, path.to_owned())));
                }
                _ => {}
            }
            line.clear();
        }
        // Nobody is to be ended by a pipe that is full or closed.
        let _ = lines.read_to_end(&mut Vec::new());
    });
    told.recv_timeout(PATIENCE).ok().flatten()
}

/// The server, its rooms and their groups go with the test, however that ended.
impl Drop for Server<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the server's log:\n{}", self.log());
        }
        self.end(Signal::KILL);
        let sessions = sessions_in(&self.state);
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.end_rooms();
            let groups = groups_of(&sessions);
            groups.iter().for_each(|group| drop(fs::remove_dir(group)));
            let left = (self.room_processes(), groups_of(&sessions));
            if left.0.is_empty() && left.1.is_empty() {
                break;
            }
            if Instant::now() > deadline {
                assert!(std::thread::panicking(), "cannot be ended: {left:?}");
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let _ = fs::remove_dir_all(&self.state);
    }
}
