//! A command's output as it comes, for a caller that reads along.

use crate::ExecEvent;
use crate::actor::{Ask, Handle, Live};
use crate::exec::{ExecPlan, Finished, Memo};
use std::os::fd::OwnedFd;
use tokio::sync::{mpsc, oneshot};
use workroom_proto::{SpoolReader, Stream};
use workroom_sys::readiness::watch_reading;
use workroom_types::Problem;

/// Bytes in one event.
const CHUNK: usize = 64 << 10;

/// Events that wait for a slow reader. What it does not take meanwhile stays in the spool, as far as that reaches.
const WAITING: usize = 8;

/// Starts the command and a task that sends what comes out of it.
pub(crate) async fn start(handle: &Handle, plan: ExecPlan) -> Result<mpsc::Receiver<ExecEvent>, Problem> {
    let memo = plan.memo.clone();
    let (live, started) = oneshot::channel();
    let (reply, end) = oneshot::channel();
    let ask = Ask::Exec { plan: Box::new(plan), live: Some(live), reply };
    if handle.asks.send(ask).await.is_err() {
        return Err(crate::room::gone("the session is gone"));
    }
    let (events, receiver) = mpsc::channel(WAITING);
    match started.await {
        Ok(live) => {
            tokio::spawn(pump(live, end, memo, events));
            Ok(receiver)
        }
        // It never started: the answer says why.
        Err(_) => match end.await {
            Ok(Err(problem)) => Err(problem),
            Ok(Ok(end)) => {
                let _ = events.try_send(last(&end, &memo));
                Ok(receiver)
            }
            Err(_) => Err(crate::room::gone("the session is gone")),
        },
    }
}

async fn pump(
    live: Live,
    mut end: oneshot::Receiver<Result<Finished, Problem>>,
    memo: Memo,
    events: mpsc::Sender<ExecEvent>,
) {
    let Live { spool, counter } = live;
    let mut sent = [0u64; 2];
    let Ok(counter) = watch_reading(counter) else { return };
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut end => break ended,
            ready = counter.readable() => {
                let Ok(mut ready) = ready else { return };
                reset(counter.get_ref());
                ready.clear_ready();
                if send_new(&spool, &mut sent, &events).await.is_err() {
                    return;
                }
            }
        }
    };
    // All that was written before the end.
    if send_new(&spool, &mut sent, &events).await.is_err() {
        return;
    }
    let event = match ended {
        Ok(Ok(end)) => last(&end, &memo),
        Ok(Err(problem)) => ExecEvent::Failed(problem),
        Err(_) => ExecEvent::Failed(crate::room::gone("the session is gone")),
    };
    let _ = events.send(event).await;
}

fn last(end: &Finished, memo: &Memo) -> ExecEvent {
    match crate::result(end, memo) {
        Ok(result) => ExecEvent::Exit(Box::new(result)),
        Err(problem) => ExecEvent::Failed(problem),
    }
}

/// Takes the counter back to nothing, so that it tells of the next write.
fn reset(counter: &OwnedFd) {
    let _ = rustix::io::read(counter, &mut [0u8; 8]);
}

async fn send_new(
    spool: &SpoolReader,
    sent: &mut [u64; 2],
    events: &mpsc::Sender<ExecEvent>,
) -> Result<(), ()> {
    loop {
        let mut quiet = true;
        for stream in Stream::BOTH {
            let from = sent[stream as usize];
            let piece = spool.read(stream, from, CHUNK).map_err(drop)?;
            if piece.data.is_empty() {
                continue;
            }
            quiet = false;
            let (offset, data, missing) = (piece.offset, piece.data, piece.offset - from);
            sent[stream as usize] = offset + data.len() as u64;
            let event = match stream {
                Stream::Stdout => ExecEvent::Stdout { offset, data, missing },
                Stream::Stderr => ExecEvent::Stderr { offset, data, missing },
            };
            events.send(event).await.map_err(drop)?;
        }
        if quiet {
            return Ok(());
        }
    }
}
