//! Servers that are measured over HTTP: our own, and one in Python that runs bwrap for every command.

use crate::guard;
use crate::http::Http;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How long a server may take to end its rooms.
const ENDS_WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

/// A server with a state of its own; ended, with its rooms, when it is dropped.
pub(crate) struct Served {
    process: Child,
    pub(crate) address: String,
    pub(crate) token: String,
}

impl Served {
    /// `workroom serve`, on a port of its choosing.
    pub(crate) fn workroom(program: &Path, state: &Path) -> Result<Served, String> {
        let mut process = Command::new(program)
            .args(["serve", "--quiet", "--listen", "127.0.0.1:0", "--state"])
            .arg(state)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the server did not start: {error}"))?;
        let lines = BufReader::new(process.stdout.take().ok_or("the server has no stdout")?).lines();
        let (mut address, mut file) = (None, None);
        for line in lines {
            let line = line.map_err(|error| error.to_string())?;
            if let Some(found) = line.strip_prefix("listening http://") {
                address = Some(found.to_owned());
            }
            if let Some(found) = line.strip_prefix("token ") {
                file = Some(found.to_owned());
            }
            if address.is_some() && file.is_some() {
                break;
            }
        }
        guard::alive();
        let (Some(address), Some(file)) = (address, file) else {
            return Err("the server said neither where it listens nor where its token is".into());
        };
        let token = std::fs::read_to_string(file).map_err(|error| error.to_string())?.trim().to_owned();
        Ok(Served { process, address, token })
    }

    /// `workroom slots`, on a port of its choosing.
    pub(crate) fn slots(program: &Path, data_dir: &Path, slots: usize) -> Result<Served, String> {
        let mut process = Command::new(program)
            .args([
                "slots",
                "--quiet",
                "--listen",
                "127.0.0.1:0",
                "--slots",
                &slots.to_string(),
                "--data-dir",
            ])
            .arg(data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the server of slots did not start: {error}"))?;
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().ok_or("the server has no stdout")?);
        output.read_line(&mut line).map_err(|error| error.to_string())?;
        let address = line.trim().strip_prefix("listening http://").ok_or("the server said no address")?;
        Ok(Served { process, address: address.to_owned(), token: String::new() })
    }

    /// A server as people write it: HTTP in Python, bwrap for every command.
    pub(crate) fn python(script: &Path, bwrap: &[String]) -> Result<Served, String> {
        let mut process = Command::new("python3")
            .arg(script)
            .args(bwrap)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("no python3: {error}"))?;
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().ok_or("python has no stdout")?);
        output.read_line(&mut line).map_err(|error| error.to_string())?;
        Ok(Served { process, address: line.trim().to_owned(), token: String::new() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn connect(&self) -> Result<Http, String> {
        self.connect_as(&self.token)
    }

    pub(crate) fn connect_as(&self, token: &str) -> Result<Http, String> {
        Http::connect(&self.address, token)
    }

    /// Deletes every session, and with it every room.
    pub(crate) fn clear(&self) {
        let Ok(mut http) = self.connect() else { return };
        while let Ok(page) = http.ask("GET", "/v1/sessions?limit=1000", "") {
            let sessions = page["sessions"].as_array().cloned().unwrap_or_default();
            if sessions.is_empty() {
                return;
            }
            for session in &sessions {
                guard::alive();
                let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap_or_default());
                if http.ask("DELETE", &path, "").is_err() {
                    return;
                }
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if !self.token.is_empty() {
            self.clear();
        }
        // One that is asked to end takes its rooms with it, if it is one that does.
        if let Some(pid) = rustix::process::Pid::from_raw(self.process.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = std::time::Instant::now() + ENDS_WITHIN;
        while matches!(self.process.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
