//! What programs are told of the proxy: the variables that they look for.

use workroom_types::CommandSpec;

/// Both spellings: some programs read one, some the other. `ALL_PROXY` speaks HTTP too, because programs that cannot do
/// SOCKS fail when they see it.
const PROXY: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
];

/// What is in the room itself is reached without it.
const NO_PROXY: [&str; 3] = ["no_proxy", "NO_PROXY", "npm_config_noproxy"];
const OWN: &str = "localhost,127.0.0.1,::1";

/// Adds the variables that the caller has not set itself.
pub(crate) fn give_proxy(spec: &mut CommandSpec, port: u16) {
    let proxy = format!("http://127.0.0.1:{port}");
    let variables = PROXY.iter().map(|name| (*name, proxy.as_str()));
    let others = NO_PROXY.iter().map(|name| (*name, OWN));
    // Node looks at them if it is told to.
    for (name, value) in variables.chain(others).chain([("NODE_USE_ENV_PROXY", "1")]) {
        let is_set = |entry: &Vec<u8>| {
            entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
        };
        if !spec.env.iter().any(is_set) {
            spec.env.push(format!("{name}={value}").into_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_has_set_stays() {
        let mut spec = CommandSpec {
            argv: Vec::new(),
            env: vec![b"http_proxy=http://mine:1".to_vec(), b"HTTP_PROXYX=other".to_vec()],
            cwd: Vec::new(),
            user: Default::default(),
            terminal: None,
        };
        give_proxy(&mut spec, 3128);
        let all: Vec<String> =
            spec.env.iter().map(|entry| String::from_utf8_lossy(entry).into_owned()).collect();
        let starting = |start: &str| all.iter().filter(|entry| entry.starts_with(start)).count();
        assert_eq!(starting("http_proxy="), 1);
        assert!(all.contains(&"http_proxy=http://mine:1".to_owned()));
        assert!(all.contains(&"HTTP_PROXY=http://127.0.0.1:3128".to_owned()), "{all:?}");
        assert!(all.contains(&"NO_PROXY=localhost,127.0.0.1,::1".to_owned()));
    }
}
