//! Whether a service is ready: looked at inside its room, never from the host's own network or files.
//!
//! A port is reached by a socket that the guest has made in the room's network; a file by a clerk of the room; a
//! command runs in the room. What a room can do to its host here is to keep it waiting, for as long as each of these
//! may take.

use super::define::ready_file;
use super::place::Place;
use crate::actor::Ask;
use crate::exec;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::Request;
use hyper::header::{HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use workroom_proto::{Answer, FromClerk, Question, ToClerk};
use workroom_types::{ExecRequest, FilePath, HttpReadiness, Readiness, ServiceSpec};

const FILE_WITHIN: Duration = Duration::from_secs(2);
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const COMMAND_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of a probing command's output that are kept: nobody reads them.
const PROBE_OUTPUT: u64 = 4096;

/// Looks once, with so much time left. The objection is for people.
pub(super) async fn look(place: &Place, room: u64, spec: &ServiceSpec, left: Duration) -> Result<(), String> {
    match &spec.readiness {
        None => Ok(()),
        Some(Readiness::File(path)) => match timeout(FILE_WITHIN, file(place, room, spec)).await {
            Ok(found) => found.map_err(|why| format!("no file {path}: {why}")),
            Err(_) => Err(format!("no word of the file {path} within {} s", FILE_WITHIN.as_secs())),
        },
        Some(Readiness::Tcp(port)) => connect(place, room, *port).await.map(drop),
        Some(Readiness::Http(http)) => match timeout(ANSWERED_WITHIN, ask_http(place, room, http)).await {
            Ok(answered) => answered,
            Err(_) => Err(format!("no answer on port {} within {} s", http.port, ANSWERED_WITHIN.as_secs())),
        },
        Some(Readiness::Command(command)) => run(place, room, spec, (command, left)).await,
    }
}

async fn file(place: &Place, room: u64, spec: &ServiceSpec) -> Result<(), String> {
    let actor = place.actor();
    let clerks = place.ask(room, |reply| Ask::Clerks { actor, reply }).await;
    let clerks = clerks.map_err(|problem| problem.detail)?;
    let mut clerk = clerks.lend().await.map_err(|problem| problem.detail)?;
    let stat = ToClerk::Stat(FilePath { path: ready_file(spec), root: true });
    match clerk.ask(&stat, &[]).await {
        Ok((FromClerk::Info(_), _)) => Ok(()),
        Ok((FromClerk::Failed(failure), _)) => Err(failure.detail),
        Ok(_) => Err("the room answers another question".into()),
        Err(lost) => Err(clerk.explain(lost).await.detail),
    }
}

/// A connection to a port of the room's loopback.
async fn connect(place: &Place, room: u64, port: u16) -> Result<TcpStream, String> {
    let mut objection = String::new();
    for v6 in [false, true] {
        match timeout(CONNECTED_WITHIN, connect_by(place, room, port, v6)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(why)) if objection.is_empty() => objection = format!("port {port}: {why}"),
            Ok(Err(_)) => {}
            Err(_) => objection = format!("port {port}: no connection within a second"),
        }
    }
    Err(objection)
}

async fn connect_by(place: &Place, room: u64, port: u16, v6: bool) -> Result<TcpStream, String> {
    let question = Question::Connect { port, v6 };
    let asked = place.ask(room, |reply| Ask::Guest { question, reply }).await;
    let socket = match asked.map_err(|problem| problem.detail)? {
        (Answer::Connected, mut fds) => fds.pop().ok_or("the room gave no connection")?,
        (Answer::Failed { why }, _) => return Err(why),
        _ => return Err("the room answers another question".into()),
    };
    let stream = std::net::TcpStream::from(socket);
    let connected = async {
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream)?;
        // It stands once it can be written to and nothing went wrong.
        stream.writable().await?;
        match stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    };
    connected.await.map_err(|error: std::io::Error| error.to_string())
}

/// Ends a task with whoever waits for it.
struct Driven(tokio::task::JoinHandle<()>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn ask_http(place: &Place, room: u64, http: &HttpReadiness) -> Result<(), String> {
    let HttpReadiness { port, path } = http;
    let stream = connect(place, room, *port).await?;
    let wrong = |error: hyper::Error| format!("port {port}: no HTTP answer: {error}");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(wrong)?;
    let _driven = Driven(tokio::spawn(async move {
        let _ = connection.await;
    }));
    let request = Request::get(path.as_deref().unwrap_or("/"))
        .header(HOST, format!("localhost:{port}"))
        .header(USER_AGENT, "workroom")
        .body(Empty::<Bytes>::new())
        .map_err(|error| format!("the path cannot be asked for: {error}"))?;
    let status = sender.send_request(request).await.map_err(wrong)?.status().as_u16();
    match status {
        200..=399 => Ok(()),
        other => Err(format!("port {port} answers with {other}")),
    }
}

async fn run(
    place: &Place,
    room: u64,
    spec: &ServiceSpec,
    (command, left): (&str, Duration),
) -> Result<(), String> {
    // The room ends it, whoever waits: nothing of it is left when the service is given up.
    let within = COMMAND_WITHIN.min(left).max(Duration::from_millis(1));
    let request = ExecRequest {
        command: Some(command.to_owned()),
        cwd: spec.cwd.clone(),
        env: spec.env.clone(),
        user: spec.user,
        timeout_ms: Some(within.as_millis() as u64),
        max_output: Some(PROBE_OUTPUT),
        ..ExecRequest::default()
    };
    let shared = &place.shared;
    let plan = exec::plan(request, &shared.config.exec, shared.machine, &place.actor(), false);
    let mut plan = Box::new(plan.map_err(|problem| problem.detail)?);
    plan.memo.quiet = true;
    let ran = place.ask(room, |reply| Ask::Exec { plan, live: None, reply }).await;
    let report = ran.map_err(|problem| problem.detail)?.report;
    match report.exit.status() {
        _ if report.timed_out => {
            Err(format!("the readiness command did not end within {} ms", within.as_millis()))
        }
        0 => Ok(()),
        code => Err(format!("the readiness command exited with {code}")),
    }
}
