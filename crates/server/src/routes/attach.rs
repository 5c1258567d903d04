//! `…/processes/{process}/attach`: a process both ways on one WebSocket, by any number of viewers at once.
//!
//! | who | message | meaning |
//! |---|---|---|
//! | server | text `{"type":"attached","process":{…}}` | the first one |
//! | server | binary: stream (1 stdout, 2 stderr), offset (8 bytes, big-endian), data | output |
//! | server | text `{"type":"missing","stream":…,"bytes":…}` | these were dropped before they could be read |
//! | server | text `{"type":"exit","process":{…}}` | the last one |
//! | client | binary | input, as it is |
//! | client | text `{"type":"resize","cols":…,"rows":…}`, `{"type":"signal","signal":…}`, `{"type":"close_input"}` | |
//! | server | text `{"type":"error","problem":{…}}` | what the client asked for was not done |

use crate::app::Stopping;
use crate::call::Call;
use crate::openapi::{ProcessPath, SessionPath};
use crate::reply::Answer;
use crate::routes::processes::named;
use crate::sse::heartbeat;
use crate::websocket::{self, Socket};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use utoipa::IntoParams;
use workroom_engine::{Followed, Follower, ProcessHandle};
use workroom_types::{OutputStream, Problem, PtySize, SendSignal, SignalTo};

/// As long as a process may leave its input unread: until the viewer goes away.
const INPUT_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// How long either side may take with what is left to say when it is over.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AttachParams {
    /// The first byte of stdout that is wanted; without, what is written from now on.
    cursor: Option<u64>,
    /// The same of stderr.
    stderr_cursor: Option<u64>,
    /// Only watch: what the client sends is refused.
    read_only: bool,
}

/// Attach to a process
///
/// A WebSocket. Output comes as binary messages: one byte for the stream (1 stdout, 2 stderr), eight for the offset, then
/// the data. Binary messages of the client are input. Text messages are JSON: `attached`, `missing`, `error` and `exit`
/// from the server; `resize`, `signal` and `close_input` from the client.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/processes/{process}/attach",
    tag = "processes",
    operation_id = "attach_process",
    params(SessionPath, ProcessPath, AttachParams),
    responses((status = 101, description = "From here on a WebSocket")),
)]
pub(crate) async fn attach(mut call: Call) -> Answer {
    let params = call.query::<AttachParams>()?;
    let process = named(&call).await?;
    let info = process.info();
    let cursors = [
        Some(params.cursor.unwrap_or(info.stdout.written)),
        Some(params.stderr_cursor.unwrap_or(info.stderr.written)),
    ];
    let follower = process.follow(cursors)?;
    let stopping = call.app.stopping.clone();
    websocket::upgrade(&mut call, move |socket| {
        serve(socket, process, follower, Mode { read_only: params.read_only }, stopping)
    })
}

struct Mode {
    read_only: bool,
}

async fn serve(socket: Socket, process: ProcessHandle, follower: Follower, mode: Mode, stopping: Stopping) {
    let (sink, source) = socket.split();
    // What the reader has to say to the client goes through the writer; a few at a time.
    let (answers, to_say) = mpsc::channel(8);
    let attached = json!({ "type": "attached", "process": process.info() });
    if answers.send(Message::text(attached.to_string())).await.is_err() {
        return;
    }
    // A terminal that is written through answers what programs ask of it.
    let viewer = (!mode.read_only).then(|| process.viewer());
    let mut reader = tokio::spawn(read(source, process, mode, answers));
    let mut ending = stopping.clone();
    // A client that does not read must not hold up the end of the server.
    let end = async {
        ending.begun().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        () = write(sink, follower, to_say, stopping) => {}
        () = end => {}
    }
    drop(viewer);
    // What a client that went away had sent is still to be taken.
    let _ = tokio::time::timeout(LAST_WORDS, &mut reader).await;
    reader.abort();
}

/// Passes on output until the process ends, the client goes away or the server ends.
async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut follower: Follower,
    mut to_say: mpsc::Receiver<Message>,
    mut stopping: Stopping,
) {
    let mut heartbeat = heartbeat();
    let close = loop {
        let sent = tokio::select! {
            said = to_say.recv() => match said {
                Some(message) => sink.send(message).await,
                // The client has closed, or is gone.
                None => return,
            },
            next = follower.next() => match next {
                Ok(Followed::Output { stream, offset, data, missing }) => {
                    output(&mut sink, stream, offset, &data, missing).await
                }
                Ok(Followed::Ended(process)) => {
                    let end = json!({ "type": "exit", "process": process });
                    let _ = sink.send(Message::text(end.to_string())).await;
                    break CloseFrame { code: CloseCode::Normal, reason: "the process has ended".into() };
                }
                Err(_) => {
                    break CloseFrame { code: CloseCode::Error, reason: "the output cannot be read".into() };
                }
            },
            _ = heartbeat.tick() => sink.send(Message::Ping(Bytes::new())).await,
            () = stopping.begun() => {
                break CloseFrame { code: CloseCode::Away, reason: "the server is on its way down".into() };
            }
        };
        if sent.is_err() {
            return;
        }
    };
    let _ = sink.send(Message::Close(Some(close))).await;
}

async fn output(
    sink: &mut SplitSink<Socket, Message>,
    stream: OutputStream,
    offset: u64,
    data: &[u8],
    missing: u64,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    if missing > 0 {
        let lost = json!({ "type": "missing", "stream": stream, "bytes": missing });
        sink.send(Message::text(lost.to_string())).await?;
    }
    let mut message = BytesMut::with_capacity(9 + data.len());
    message.put_u8(match stream {
        OutputStream::Stdout => 1,
        OutputStream::Stderr => 2,
    });
    message.put_u64(offset);
    message.extend_from_slice(data);
    sink.send(Message::Binary(message.freeze())).await
}

/// What a client may ask for beside giving input.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Wish {
    Resize {
        cols: Option<u16>,
        rows: Option<u16>,
    },
    Signal {
        signal: String,
        #[serde(default)]
        to: SignalTo,
    },
    CloseInput,
}

/// Does what the client asks for, one thing after the other: input that is not taken holds up the rest.
async fn read(
    mut source: SplitStream<Socket>,
    process: ProcessHandle,
    mode: Mode,
    answers: mpsc::Sender<Message>,
) {
    while let Some(Ok(message)) = source.next().await {
        let done = match message {
            Message::Binary(_) | Message::Text(_) if mode.read_only => {
                Err(Problem::invalid("this viewer only watches", "attach without read_only"))
            }
            Message::Binary(data) => process.write(&data, INPUT_PATIENCE).await.map(|_| ()),
            Message::Text(text) => match serde_json::from_str::<Wish>(&text) {
                Ok(wish) => grant(&process, wish).await,
                Err(error) => Err(Problem::invalid(format!("the message is not understood: {error}"), "")),
            },
            Message::Close(_) => return,
            _ => Ok(()),
        };
        if let Err(problem) = done {
            let told = json!({ "type": "error", "problem": problem });
            if answers.send(Message::text(told.to_string())).await.is_err() {
                return;
            }
        }
    }
}

async fn grant(process: &ProcessHandle, wish: Wish) -> Result<(), Problem> {
    match wish {
        Wish::Resize { cols, rows } => process.resize(PtySize { cols, rows }).await.map(|_| ()),
        Wish::Signal { signal, to } => process.signal(SendSignal { signal, to }).await,
        Wish::CloseInput => process.close_input().await,
    }
}
