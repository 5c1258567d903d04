//! What the race is run with: the arena, the hostile program that runs in the room, and the file work that goes through it.

pub(crate) mod deeds;
pub(crate) mod swapper;

/// Where the race is, in the workspace.
pub(crate) const ARENA: &str = "arena";

/// What every file outside says. No answer may hold it, and no file of the workspace.
pub(crate) const CANARY: &str = "CANARY-4c1f09";

/// A name that is there outside only, and is never asked for.
pub(crate) const ONLY_OUTSIDE: &str = "only-outside-4c1f09";

/// The size of a file that is there outside only: more than all of the workspace.
pub(crate) const OUTSIDE_SIZE: u64 = 987_654_321;

/// Names in the arena that are a directory at one moment and a link at the next, and the link. Each pair of names is
/// exchanged in one step, so that a look and a use may always see different things. A few at a time: what is exchanged
/// seldom is seldom exchanged between a look and a use.
pub(crate) const TRAPS: [&[(&str, &str)]; 5] = [
    &[("absolute", "/tmp/outside"), ("relative", "../../tmp/outside")],
    // The last is a part of the path above the one that counts.
    &[("home", "/home/agent"), ("etc", "/etc"), ("above", "/tmp")],
    &[("chain", "link-1"), ("back-in", "/workspace/../tmp/outside")],
    &[("root", "/proc/self/root/tmp/outside"), ("self", "/proc/self")],
    &[("cwd", "/proc/self/cwd/../../tmp/outside"), ("through", "link-3/../../tmp/outside")],
];

/// Links that stay as they are.
pub(crate) const LINKS: [(&str, &str); 3] =
    [("link-1", "link-2"), ("link-2", "link-3/../outside"), ("link-3", "/tmp/outside")];

/// Directories that are exchanged with each other, beside the traps: whoever climbs out of one by `..` comes out elsewhere.
pub(crate) const ELSEWHERE: [(&str, &str); 2] = [("deep/x/y/z", "shallow"), ("deep/x", "wide")];

/// Files of every directory that is swapped, and of its `sub`, `outside` and `outside/sub`; those outside have the same
/// names.
pub(crate) const FILES: [&str; 5] = ["a", "b", "canary", "passwd", "hostname"];
