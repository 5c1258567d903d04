//! What happens in a directory, as the host is told.
#![allow(clippy::disallowed_methods, reason = "nobody swaps paths in a test's own directory")]

use super::super::scratch::{Scratch, path};
use super::*;
use std::os::unix::ffi::OsStrExt;
use workroom_proto::Received;

/// A clerk that watches, in a thread of its own.
struct Host {
    channel: Channel,
    seq: u64,
    last: Option<String>,
    clerk: Option<std::thread::JoinHandle<Result<(), Problem>>>,
}

impl Host {
    fn new(room: &Scratch, at: &str, recursive: bool) -> Host {
        let (channel, theirs) = Channel::pair().unwrap();
        let (base, at) = (room.base(), path(at));
        let clerk = std::thread::spawn(move || watch(&base, &at, recursive, &theirs));
        let host = Host { channel, seq: 0, last: None, clerk: Some(clerk) };
        assert_eq!(host.message(), FromClerk::Watching);
        host
    }

    fn message(&self) -> FromClerk {
        let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(ready, 1, "nothing is told");
        match self.channel.receive().unwrap() {
            Received::Message(message, _) => message,
            Received::Closed => panic!("the clerk hung up"),
        }
    }

    /// The next event in words; numbers have no gaps.
    fn next(&mut self) -> String {
        let FromClerk::Event(event) = self.message() else { panic!("no event") };
        self.seq += 1;
        assert_eq!(event.seq, self.seq);
        let kind = format!("{:?}", event.kind).to_lowercase();
        let from = event.from.map_or(String::new(), |from| format!("{from} -> "));
        format!("{kind} {from}{}{}", event.path, if event.directory { "/" } else { "" })
    }

    /// These and nothing else, except that one write may be seen in more than one go: what was told of
    /// last may be told to have changed again.
    fn expect(&mut self, wanted: &[&str]) {
        for wanted in wanted {
            let mut told = self.next();
            while told != *wanted && self.last.as_ref().is_some_and(|path| told == format!("modified {path}"))
            {
                told = self.next();
            }
            assert_eq!(told, *wanted);
            self.last = wanted.rsplit(' ').next().map(str::to_owned);
        }
    }

    /// All events up to and with this one, sorted.
    fn until(&mut self, last: &str) -> Vec<String> {
        let mut events = Vec::new();
        while events.last().is_none_or(|event| event != last) {
            events.push(self.next());
        }
        events.sort();
        events
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both).unwrap();
        if let (Some(clerk), false) = (self.clerk.take(), std::thread::panicking()) {
            clerk.join().unwrap().unwrap();
        }
    }
}

#[test]
fn changes_are_told_once_and_in_order() {
    let room = Scratch::new();
    room.mkdir("sub");
    let mut host = Host::new(&room, "", true);
    room.write("sub/file", "a");
    host.expect(&["created sub/file"]);
    for _ in 0..100 {
        room.write("sub/file", "b");
    }
    host.expect(&["modified sub/file"]);
    // The writes may have been seen in more than one go.
    std::fs::rename(room.inside("sub/file"), room.inside("moved")).unwrap();
    let events = host.until("renamed sub/file -> moved");
    assert!(
        events.iter().all(|event| event == "modified sub/file" || event.starts_with("renamed")),
        "{events:?}"
    );
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(room.inside("moved"), std::fs::Permissions::from_mode(0o600)).unwrap();
    host.expect(&["modified moved"]);
    std::fs::remove_file(room.inside("moved")).unwrap();
    host.expect(&["deleted moved"]);
    std::fs::rename(room.inside("sub"), room.outside("sub")).unwrap();
    host.expect(&["deleted sub/"]);
    std::fs::write(room.outside("sub/unseen"), "").unwrap();
    std::fs::rename(room.outside("sub"), room.inside("back")).unwrap();
    host.expect(&["created back/", "created back/unseen"]);
}

#[test]
fn directories_are_followed_as_they_appear_and_move() {
    let room = Scratch::new();
    room.mkdir("old/deep/deeper");
    let mut host = Host::new(&room, "", true);
    // Many at once: whatever is not seen happening is found.
    for number in 0..20 {
        room.mkdir(format!("new/{number}/a/b"));
        room.write(format!("new/{number}/a/b/file"), "");
    }
    room.write("last", "");
    let events = host.until("created last");
    for number in 0..20 {
        for path in [format!("new/{number}/"), format!("new/{number}/a/b/"), format!("new/{number}/a/b/file")]
        {
            let created = format!("created {path}");
            assert!(events.contains(&created), "{created} is not in {events:?}");
        }
    }
    std::fs::rename(room.inside("old"), room.inside("new/0/old")).unwrap();
    room.write("new/0/old/deep/deeper/file", "");
    let events = host.until("created new/0/old/deep/deeper/file");
    assert!(events.contains(&"renamed old -> new/0/old/".to_owned()), "{events:?}");
    room.link("../outside", "link");
    host.expect(&["created link"]);
    std::fs::write(room.outside("deeper/not-told"), "").unwrap();
    std::fs::write(room.inside("").join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
    host.expect(&["created \\xff"]);
    std::fs::remove_file(room.outside("deeper/not-told")).unwrap();
}

#[test]
fn one_directory_or_one_file_can_be_watched() {
    let room = Scratch::new();
    room.mkdir("sub/deep");
    room.write("sub/file", "");
    let mut flat = Host::new(&room, "sub", false);
    let mut one = Host::new(&room, "sub/file", true);
    room.write("sub/deep/unseen", "");
    room.write("sub/other", "");
    flat.expect(&["created sub/other"]);
    room.write("sub/file", "x");
    flat.expect(&["modified sub/file"]);
    one.expect(&["modified sub/file"]);
    // Saved by putting another in its place.
    std::fs::rename(room.inside("sub/other"), room.inside("sub/file")).unwrap();
    flat.expect(&["renamed sub/other -> sub/file"]);
    one.expect(&["created sub/file"]);
    std::fs::remove_dir_all(room.inside("sub")).unwrap();
    one.until("deleted sub/file");
    flat.until("deleted sub/");
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let room = Scratch::new();
    room.fifo("fifo");
    let (_host, clerk) = Channel::pair().unwrap();
    let code = |at: &str| watch(&room.base(), &path(at), true, &clerk).unwrap_err().code;
    assert_eq!(code("fifo"), workroom_types::ProblemCode::WrongKind);
    assert_eq!(code("missing"), workroom_types::ProblemCode::NotFound);
}

#[test]
fn what_is_lost_is_said_to_be_lost() {
    let room = Scratch::new();
    let mut host = Host::new(&room, "", true);
    let most: usize =
        std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    // The host does not read, so the clerk waits, so the kernel's queue fills.
    let files = most.min(200_000) * 2 + 5000;
    for number in 0..files {
        room.write(format!("{}", number % 500), "x");
        std::fs::remove_file(room.inside(format!("{}", number % 500))).unwrap();
    }
    loop {
        if host.next() == "overflow " {
            break;
        }
    }
}
