//! Environment variables that no secret may be put into.
//!
//! Not because a room must be kept from them: whoever runs commands in it can set them anyhow. A secret is data.
//! In these variables it would be taken for a path, an option or a program; at best everything in the room stops
//! working, often with a message that quotes the value in pieces that nobody recognises any more. And a variable
//! that a shell overwrites never arrives.
//!
//! Only what acts on every program, every shell or every run of a common interpreter is here. A variable of one
//! program, such as one that names its configuration, is its caller's to choose.

const LOADER: &str = "the loader and the C library obey it in every program";
const SHELL: &str = "shells obey it";
const OVERWRITTEN: &str = "shells set it themselves, so the secret would not arrive";
const ROOM: &str = "the room sets it, and programs do not work without it";
const INTERPRETER: &str = "an interpreter takes it for options, or for code to run";
const UNDERSCORE: &str = "names that begin with an underscore belong to shells and runtimes";

const PREFIXES: [(&str, &str); 5] = [
    ("_", UNDERSCORE),
    // LD_PRELOAD, LD_LIBRARY_PATH, LD_AUDIT and whatever a loader of tomorrow knows.
    ("LD_", LOADER),
    ("MALLOC_", LOADER),
    // BASH_ENV runs a file; BASH_FUNC_… defines functions; the others are set by the shell.
    ("BASH_", SHELL),
    // Kept for what the room says of itself.
    ("WORKROOM_", ROOM),
];

const NAMES: [(&str, &[&str]); 5] = [
    (ROOM, &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "TMPDIR"]),
    // Those that the C library itself ignores in privileged programs, for what they can do.
    (
        LOADER,
        &[
            "GCONV_PATH",
            "GETCONF_DIR",
            "GLIBC_TUNABLES",
            "HOSTALIASES",
            "LOCALDOMAIN",
            "LOCPATH",
            "LC_ALL",
            "NIS_PATH",
            "NLSPATH",
            "RESOLV_HOST_CONF",
            "RES_OPTIONS",
            "TZDIR",
        ],
    ),
    // What splits words, runs at a start or a prompt, is printed at each traced command, or changes the grammar.
    (
        SHELL,
        &[
            "BASHOPTS",
            "CDPATH",
            "ENV",
            "FIGNORE",
            "FPATH",
            "GLOBIGNORE",
            "HISTFILE",
            "IFS",
            "INPUTRC",
            "MAIL",
            "MAILPATH",
            "POSIXLY_CORRECT",
            "PROMPT_COMMAND",
            "PS0",
            "PS1",
            "PS2",
            "PS3",
            "PS4",
            "SHELLOPTS",
            "TIMEFORMAT",
            "TMOUT",
            "ZDOTDIR",
        ],
    ),
    (
        OVERWRITTEN,
        &[
            "BASH",
            "BASHPID",
            "COLUMNS",
            "COMP_LINE",
            "DIRSTACK",
            "EPOCHREALTIME",
            "EPOCHSECONDS",
            "EUID",
            "FUNCNAME",
            "GROUPS",
            "HISTCMD",
            "HOSTNAME",
            "HOSTTYPE",
            "LINENO",
            "LINES",
            "MACHTYPE",
            "OLDPWD",
            "OPTARG",
            "OPTERR",
            "OPTIND",
            "OSTYPE",
            "PIPESTATUS",
            "PPID",
            "PWD",
            "RANDOM",
            "REPLY",
            "SECONDS",
            "SHLVL",
            "SRANDOM",
            "UID",
        ],
    ),
    (
        INTERPRETER,
        &[
            "CLASSPATH",
            "GEM_PATH",
            "JAVA_TOOL_OPTIONS",
            "JDK_JAVA_OPTIONS",
            "LUA_INIT",
            "NODE_OPTIONS",
            "NODE_PATH",
            "PERL5DB",
            "PERL5LIB",
            "PERL5OPT",
            "PERLLIB",
            "PYTHONBREAKPOINT",
            "PYTHONHOME",
            "PYTHONINSPECT",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PYTHONWARNINGS",
            "RUBYLIB",
            "RUBYOPT",
        ],
    ),
];

/// Why it may not be used, if so. `=` and everything else that no name may hold is refused before.
pub(crate) fn reason(name: &str) -> Option<&'static str> {
    let by_name = NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(reason, _)| *reason);
    by_name
        .or_else(|| PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, reason)| *reason))
}
