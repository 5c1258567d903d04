//! A command that prints the master key, such as one that asks a KMS.

use crate::key::KeyError;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Far more than the keys there may be.
const LARGEST: usize = 64 * 1024;

/// How often it is asked whether it has ended, once its output has.
const GLANCE: Duration = Duration::from_millis(5);

/// Runs it to its end and returns what it printed. It has our environment, where a KMS finds its credentials, and our
/// stderr, so that its own words reach the log: they are not repeated in an error, as they might hold anything.
pub(crate) fn output(command: &[String], limit: Duration) -> Result<Zeroizing<String>, KeyError> {
    let program = command.first().cloned().unwrap_or_default();
    let failed = |what: String| KeyError::Command { program: program.clone(), what };
    let deadline = Instant::now() + limit;
    let mut child = Command::new(&program)
        .args(command.iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("does not start: {error}")))?;
    let text = printed(&mut child, deadline);
    let status = ended(&mut child, deadline);
    let (Some(text), Some(status)) = (text, status) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(format!("was not done after {} seconds", limit.as_secs())));
    };
    // First, because nobody reads on and that alone may have ended it.
    if text.len() > LARGEST {
        return Err(failed(format!("printed more than {LARGEST} bytes")));
    }
    if !status.success() {
        return Err(failed(format!("ended with {status}")));
    }
    match std::str::from_utf8(&text) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(failed("printed something that is no text; let it print hex or base64".into())),
    }
}

/// Its output to the end, or a byte more than there may be. A thread of its own reads, because a child that was left
/// behind may hold the pipe open for ever.
fn printed(child: &mut Child, deadline: Instant) -> Option<Zeroizing<Vec<u8>>> {
    let pipe = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Zeroizing::new(Vec::with_capacity(LARGEST + 1));
        let _ = pipe.take(LARGEST as u64 + 1).read_to_end(&mut text);
        let _ = sender.send(text);
    });
    receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
}

fn ended(child: &mut Child, deadline: Instant) -> Option<std::process::ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(GLANCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> String {
        let command = ["sh", "-c", script].map(str::to_owned);
        output(&command, Duration::from_millis(300)).expect_err("it has no end").to_string()
    }

    #[test]
    fn a_command_that_hangs_is_given_up() {
        assert!(words("exec sleep 1000").contains("was not done"));
        // Its output has ended, but not it.
        assert!(words("exec >&-; exec sleep 1000").contains("was not done"));
    }

    #[test]
    fn so_is_one_whose_child_keeps_the_output_open() {
        assert!(words("sleep 5 2>&- & echo 00").contains("was not done"));
    }
}
