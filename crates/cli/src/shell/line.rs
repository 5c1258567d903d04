//! The line between the caller's terminal and a session's: made, used, and made again when it breaks.

use super::keyboard::Keyboard;
use super::modes::Modes;
use super::{own_size, paint};
use crate::output;
use crate::remote::Failure;
use bytes::Bytes;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use workroom_client::{
    AttachOptions, Attached, AttachedInput, Attachment, Client, ClientError, ScreenOptions,
};
use workroom_types::{ProblemCode, Process, PtySize, TerminalSize};

/// How long a server may be away.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that comes back sooner is not spoken of.
const UNNOTICED: Duration = Duration::from_secs(2);

const BETWEEN_TRIES: Duration = Duration::from_millis(200);
const LONGEST_TRY: Duration = Duration::from_secs(10);

/// Pieces of typing that wait for a program which does not read; then the keyboard waits too.
const MOST_WAITING: usize = 256;

/// Somebody at a terminal of a session.
pub(crate) struct Viewer {
    pub(crate) client: Client,
    pub(crate) session: String,
    pub(crate) process: Process,
    pub(crate) read_only: bool,
    /// The byte that leaves.
    pub(crate) detach: u8,
    pub(crate) modes: Modes,
    /// The next byte of output.
    pub(crate) cursor: u64,
    pub(crate) keyboard: Keyboard,
    pub(crate) signals: Signals,
}

/// Why somebody is not there any more.
pub(crate) enum Left {
    Detached,
    /// The shell has ended.
    Ended(Box<Process>),
    /// By a signal to this program, or because its own terminal is gone.
    Told(u8),
}

/// How a line begins.
#[derive(Clone, Copy)]
pub(crate) enum Line {
    /// With this byte of output.
    From(u64),
    /// With the screen as it is.
    Painted,
}

/// How a line ended.
enum Over {
    Left(Left),
    Broke,
    /// Output was written faster than it could be read: the screen has to be looked at.
    Overtaken,
}

/// What is said to the session's terminal.
enum Wish {
    Type(Bytes),
    Resize(TerminalSize),
}

impl Viewer {
    /// Until somebody leaves, or it ends.
    pub(crate) async fn stay(&mut self, first: Line) -> Result<Left, Failure> {
        let mut attachment = self.connect(first).await?;
        loop {
            let next = match self.pass(attachment).await? {
                Over::Left(left) => return Ok(left),
                Over::Broke => Line::From(self.cursor),
                Over::Overtaken => Line::Painted,
            };
            attachment = match self.connect_again(next).await? {
                Ok(attachment) => attachment,
                Err(left) => return Ok(left),
            };
        }
    }

    async fn connect(&mut self, line: Line) -> Result<Attachment, Failure> {
        match line {
            Line::From(cursor) => self.cursor = cursor,
            Line::Painted => {
                let size = own_size();
                if !self.read_only {
                    let size = PtySize { cols: Some(size.cols), rows: Some(size.rows) };
                    // One that has ended keeps its size, and is looked at all the same.
                    let _ = self.client.resize_terminal(&self.session, &self.process.id, size).await;
                }
                let options = ScreenOptions { scrollback: 0, attributes: true };
                let screen = self.client.screen(&self.session, &self.process.id, options).await?;
                self.show(paint::paint(&screen).as_bytes())?;
                self.cursor = screen.next_cursor;
            }
        }
        let options = AttachOptions {
            cursor: Some(self.cursor),
            read_only: self.read_only,
            ..AttachOptions::default()
        };
        Ok(self.client.attach_process(&self.session, &self.process.id, options).await?)
    }

    /// Tries until the server is there again, the caller has enough, or it takes too long.
    async fn connect_again(&mut self, mut line: Line) -> Result<Result<Attachment, Left>, Failure> {
        let began = Instant::now();
        let mut is_told = false;
        loop {
            match timeout(LONGEST_TRY, self.connect(line)).await {
                Ok(Ok(attachment)) => return Ok(Ok(attachment)),
                Ok(Err(Failure::Error(error))) if may_come_back(&error) && began.elapsed() < PATIENCE => {}
                Ok(Err(failure)) => return Err(failure),
                Err(_) if began.elapsed() < PATIENCE => {}
                Err(_) => return Err(Failure::problem("the server does not answer", "attach again later")),
            }
            if !is_told && began.elapsed() > UNNOTICED {
                is_told = true;
                // It is in the way of what is on the screen, which is therefore painted anew.
                line = Line::Painted;
                self.show(b"\r\n[the line to the server broke; it is made again]\r\n")?;
            }
            tokio::select! {
                () = sleep(BETWEEN_TRIES) => {}
                typed = self.keyboard.next() => match typed {
                    Ok(keys) if keys.is_empty() => return Ok(Err(Left::Told(1))),
                    Ok(keys) if keys.contains(&self.detach) => return Ok(Err(Left::Detached)),
                    // Nobody is there to take it.
                    Ok(_) => self.show(b"\x07")?,
                    Err(_) => return Ok(Err(Left::Told(1))),
                },
                told = self.signals.next() => {
                    if let Some(signal) = told {
                        return Ok(Err(Left::Told(signal)));
                    }
                }
            }
        }
    }

    /// Passes on keys and output until one of the two ends.
    async fn pass(&mut self, attachment: Attachment) -> Result<Over, Failure> {
        let (input, mut said) = attachment.split();
        let (wishes, to_do) = mpsc::channel(MOST_WAITING);
        // By itself: a program that reads nothing may write all the same.
        let writer = tokio::spawn(write(input, to_do));
        self.wish(&wishes, Wish::Resize(own_size())).await;
        let over = loop {
            tokio::select! {
                said = said.next() => match said {
                    Ok(Some(Attached::Output { offset, data, .. })) => {
                        self.show(&data)?;
                        self.cursor = offset + data.len() as u64;
                    }
                    Ok(Some(Attached::Exit(process))) => break Over::Left(Left::Ended(process)),
                    Ok(Some(Attached::Missing { .. })) => break Over::Overtaken,
                    Ok(Some(Attached::Process(_) | Attached::Error(_))) => {}
                    Ok(None) | Err(_) => break Over::Broke,
                },
                typed = self.keyboard.next(), if wishes.capacity() > 0 => match typed {
                    Ok(keys) if keys.is_empty() => break Over::Left(Left::Told(1)),
                    Ok(keys) => {
                        let leaves = keys.iter().position(|key| *key == self.detach);
                        let kept = keys[..leaves.unwrap_or(keys.len())].to_vec();
                        if !kept.is_empty() {
                            self.wish(&wishes, Wish::Type(kept.into())).await;
                        }
                        if leaves.is_some() {
                            drop(wishes);
                            // What was typed before it has arrived when the server ends the line.
                            let over = async { while let Ok(Some(_)) = said.next().await {} };
                            let _ = timeout(LONGEST_TRY, over).await;
                            break Over::Left(Left::Detached);
                        }
                    }
                    Err(_) => break Over::Left(Left::Told(1)),
                },
                told = self.signals.next() => match told {
                    Some(signal) => break Over::Left(Left::Told(signal)),
                    None => self.wish(&wishes, Wish::Resize(own_size())).await,
                },
            }
        };
        writer.abort();
        Ok(over)
    }

    /// Only those who do not merely watch have wishes.
    async fn wish(&self, wishes: &mpsc::Sender<Wish>, wish: Wish) {
        if !self.read_only {
            let _ = wishes.send(wish).await;
        }
    }

    fn show(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.modes.watch(bytes);
        output::bytes(bytes)
    }
}

async fn write(mut input: AttachedInput, mut wishes: mpsc::Receiver<Wish>) {
    while let Some(wish) = wishes.recv().await {
        let sent = match wish {
            Wish::Type(keys) => input.write(keys).await,
            Wish::Resize(size) => input.resize(size.cols, size.rows).await,
        };
        // That the line broke is seen where it is listened to.
        if sent.is_err() {
            return;
        }
    }
    let _ = input.close().await;
}

fn may_come_back(error: &ClientError) -> bool {
    match error {
        ClientError::NotRunning { .. } | ClientError::Transport(_) => true,
        ClientError::Problem(problem) => {
            matches!(problem.code, ProblemCode::ShuttingDown | ProblemCode::StorageUnavailable)
        }
        ClientError::Protocol(_) => false,
    }
}

/// Signals to this program.
pub(crate) struct Signals {
    window: Signal,
    ends: [(u8, Signal); 4],
}

impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        let end = |number: u8| signal(SignalKind::from_raw(number.into())).map(|signal| (number, signal));
        Ok(Signals {
            window: signal(SignalKind::window_change())?,
            ends: [end(1)?, end(2)?, end(3)?, end(15)?],
        })
    }

    /// The number of one that ends it; none if only the window has another size. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<u8> {
        let [hup, int, quit, term] = &mut self.ends;
        tokio::select! {
            _ = self.window.recv() => None,
            _ = hup.1.recv() => Some(hup.0),
            _ = int.1.recv() => Some(int.0),
            _ = quit.1.recv() => Some(quit.0),
            _ = term.1.recv() => Some(term.0),
        }
    }
}
