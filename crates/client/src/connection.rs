//! Connections to one server: made when needed, kept for the next request, given up when broken.

use crate::body::RequestBody;
use crate::{ClientError, Endpoint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

pub(crate) type Sender = http1::SendRequest<RequestBody>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// More than a handful of idle connections serves nobody.
const MOST_IDLE: usize = 8;
/// `sun_path` has room for 107 bytes and the end of the string.
const LONGEST_SOCKET_PATH: usize = 107;

pub(crate) struct Pool {
    endpoint: Endpoint,
    idle: Mutex<Vec<Sender>>,
}

/// A connection that is ready for one request.
pub(crate) struct Ready {
    pub(crate) sender: Sender,
    /// It has served before, so the server may have closed it without our knowing.
    pub(crate) used: bool,
}

impl Pool {
    pub(crate) fn new(endpoint: Endpoint) -> Pool {
        Pool { endpoint, idle: Mutex::default() }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) async fn take(&self) -> Result<Ready, ClientError> {
        while let Some(mut sender) = self.pop() {
            if !sender.is_closed() && sender.ready().await.is_ok() {
                return Ok(Ready { sender, used: true });
            }
        }
        self.fresh().await
    }

    /// A new connection; after one has broken, the idle ones are likely to be as dead.
    pub(crate) async fn fresh(&self) -> Result<Ready, ClientError> {
        self.lock().clear();
        match tokio::time::timeout(CONNECT_TIMEOUT, connect(&self.endpoint)).await {
            Ok(Ok(sender)) => Ok(Ready { sender, used: false }),
            Ok(Err(error)) => Err(self.refused(&error)),
            Err(_) => Err(ClientError::Transport(format!(
                "the server at {} did not take the connection within {} s; see whether it is overloaded or the \
                 address is wrong",
                self.endpoint,
                CONNECT_TIMEOUT.as_secs()
            ))),
        }
    }

    /// For the next request. The answer to the last one must have been read to its end.
    pub(crate) fn give_back(&self, sender: Sender) {
        let mut idle = self.lock();
        if !sender.is_closed() && idle.len() < MOST_IDLE {
            idle.push(sender);
        }
    }

    fn pop(&self) -> Option<Sender> {
        self.lock().pop()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sender>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, error: &io::Error) -> ClientError {
        let place = self.endpoint.to_string();
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => ClientError::NotRunning { place },
            io::ErrorKind::PermissionDenied => ClientError::Transport(format!(
                "{place} belongs to another user; set WORKROOM_STATE to the state directory of your own server, or \
                 WORKROOM_URL and WORKROOM_TOKEN to use that one over TCP"
            )),
            _ => ClientError::Transport(format!("the server at {place} cannot be reached: {error}")),
        }
    }
}

async fn connect(endpoint: &Endpoint) -> io::Result<Sender> {
    match endpoint {
        Endpoint::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            // Requests are small, and each is waited for.
            stream.set_nodelay(true)?;
            handshake(stream).await
        }
        Endpoint::Unix(path) => handshake(connect_unix(path).await?).await,
    }
}

/// A path that is too long for a socket's address is reached through its directory.
async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    if path.as_os_str().len() <= LONGEST_SOCKET_PATH {
        return UnixStream::connect(path).await;
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    use std::os::fd::AsRawFd;
    let dir = std::fs::File::open(dir)?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    UnixStream::connect(short).await
}

async fn handshake<S>(stream: S) -> io::Result<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the connection; what went wrong is told to whoever waits for an answer on it.
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    Ok(sender)
}
