//! What tests of ports share: servers in rooms, and connections to them.
#![allow(dead_code, reason = "every test file uses some of it")]

use serde_json::{Value, json};
use std::io::ErrorKind;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use workroom_testkit::types::{PublishPort, PublishedPort};
use workroom_testkit::{Server, TestSession, eventually, within};

/// Does what the first line of a connection says, on the port that it is given.
const TCP_SERVER: &str = r#"
import hashlib, socket, sys, threading
def serve(s):
    f = s.makefile('rb')
    words = f.readline().split()
    if words[0] == b'echo':
        while piece := f.read1(1 << 16): s.sendall(piece)
        s.shutdown(socket.SHUT_WR)
    elif words[0] == b'digest':
        all, count = hashlib.sha256(), 0
        while piece := f.read1(1 << 20): all.update(piece); count += len(piece)
        s.sendall(b'%d %s' % (count, all.hexdigest().encode()))
    elif words[0] == b'give':
        piece = bytes(range(256)) * 4096
        for _ in range(int(words[1])): s.sendall(piece)
    elif words[0] == b'last':
        s.sendall(b'last words'); s.shutdown(socket.SHUT_WR)
        count = 0
        while piece := f.read1(1 << 16): count += len(piece)
        print('heard', count, flush=True)
    elif words[0] == b'hold':
        s.sendall(b'held')
        try: f.read(1)
        except OSError: pass
        print('let go', flush=True)
    f.close(); s.close()
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
l = socket.socket(family)
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((sys.argv[1], int(sys.argv[2]))); l.listen(1024)
print('listening', flush=True)
while True:
    s, _ = l.accept()
    threading.Thread(target=serve, args=(s,), daemon=True).start()
"#;

/// Shows what it is asked, and answers in every way that HTTP has.
const HTTP_SERVER: &str = r#"
import base64, hashlib, http.server, json, socket, sys, threading
gone = threading.Event()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *words): pass
    def body(self):
        if self.headers.get('transfer-encoding') == 'chunked':
            while size := int(self.rfile.readline(), 16):
                while size: piece = self.rfile.read(min(size, 1 << 20)); size -= len(piece); yield piece
                self.rfile.readline()
            self.rfile.readline()
        else:
            size = int(self.headers.get('content-length', 0))
            while size: piece = self.rfile.read(min(size, 1 << 20)); size -= len(piece); yield piece
    def answer(self, body, headers=[], status=200):
        self.send_response(status)
        for name, value in headers: self.send_header(name, value)
        self.send_header('content-length', str(len(body))); self.end_headers()
        if self.command != 'HEAD': self.wfile.write(body)
    def asked(self):
        all, count = hashlib.sha256(), 0
        for piece in self.body(): all.update(piece); count += len(piece)
        return json.dumps({'method': self.command, 'path': self.path, 'headers': [[n.lower(), v] for n, v in self.headers.items()],
                           'count': count, 'sha256': all.hexdigest()}).encode()
    def chunk(self, piece): self.wfile.write(b'%x\r\n%s\r\n' % (len(piece), piece)); self.wfile.flush()
    def do_POST(self): self.answer(self.asked())
    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST
    def do_GET(self):
        if self.path == '/cookies':
            self.answer(b'ok', [('Set-Cookie', 'app=1; Domain=localhost; Path=/'), ('Set-Cookie', 'workroom_preview=forged'),
                                ('Clear-Site-Data', '"*"'), ('Connection', 'X-Hop'), ('X-Hop', '1'), ('X-Kept', '2')])
        elif self.path == '/redirect': self.answer(b'', [('Location', 'http://%s/there' % self.headers['host'])], 302)
        elif self.path == '/cors':
            self.answer(b'secret of the room', [('Access-Control-Allow-Origin', self.headers.get('origin', '*')), ('Access-Control-Allow-Credentials', 'true')])
        elif self.path == '/events':
            self.send_response(200); self.send_header('content-type', 'text/event-stream'); self.send_header('transfer-encoding', 'chunked'); self.end_headers()
            self.chunk(b'data: one\n\n'); gone.wait(30); self.chunk(b'data: two\n\n'); self.chunk(b'')
        elif self.path == '/go': gone.set(); self.answer(b'gone')
        elif self.path.startswith('/big/'):
            self.send_response(200); self.send_header('transfer-encoding', 'chunked'); self.end_headers()
            for _ in range(int(self.path[5:])): self.chunk(bytes(range(256)) * 4096)
            self.chunk(b'')
        elif self.headers.get('upgrade') == 'websocket':
            accept = base64.b64encode(hashlib.sha1((self.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest())
            self.wfile.write(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + accept + b'\r\n\r\n')
            while head := self.rfile.read(2):
                mask, data = self.rfile.read(4), self.rfile.read(head[1] & 127)
                self.wfile.write(bytes([head[0], len(data)]) + bytes(b ^ mask[i % 4] for i, b in enumerate(data)).upper())
            self.close_connection = True
        elif self.headers.get('upgrade') == 'shout':
            self.wfile.write(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\nConnection: Upgrade\r\n\r\n')
            while piece := self.rfile.read1(1 << 16): self.wfile.write(piece.upper())
            self.wfile.write(b'THE END'); self.close_connection = True
        else: self.answer(self.asked())
    do_HEAD = do_GET
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler)
print('listening', flush=True)
server.serve_forever()
"#;

pub(crate) fn has_python() -> bool {
    let found = Command::new("/usr/bin/python3").arg("--version").output().is_ok();
    if !found {
        println!("skipped: python3 is not installed");
    }
    found
}

/// Starts a program in the room that says when it listens; its process's id.
async fn start(session: &TestSession, argv: Value) -> String {
    let process = session.process(json!({ "argv": argv })).await;
    process.says("listening").await;
    process.id.clone()
}

pub(crate) async fn tcp_server(session: &TestSession, address: &str, port: u16) -> String {
    start(session, json!(["/usr/bin/python3", "-c", TCP_SERVER, address, port.to_string()])).await
}

pub(crate) async fn http_server(session: &TestSession, port: u16) -> String {
    start(session, json!(["/usr/bin/python3", "-c", HTTP_SERVER, port.to_string()])).await
}

pub(crate) async fn publish(session: &TestSession, port: u16) -> PublishedPort {
    publish_like(session, PublishPort { port, ..PublishPort::default() }).await
}

pub(crate) async fn publish_like(session: &TestSession, request: PublishPort) -> PublishedPort {
    let published = session.client().publish_port(&session.id, &request);
    within("a published port", published).await.expect("published")
}

/// A connection to a published port, with the first line said.
pub(crate) async fn connect(host_port: u16, line: &str) -> TcpStream {
    let connected = TcpStream::connect(("127.0.0.1", host_port));
    let mut stream = within("a connection", connected).await.expect("a host that listens");
    // One that is refused may be gone by now.
    let _ = stream.write_all(format!("{line}\n").as_bytes()).await;
    stream
}

/// What comes until the end; `None` if the connection breaks.
pub(crate) async fn rest(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    within("the end of a connection", stream.read_to_end(&mut all)).await.ok().map(|_| all)
}

/// Whether the host listens, and nobody is behind it.
pub(crate) async fn is_refused(host_port: u16) -> bool {
    let connected = TcpStream::connect(("127.0.0.1", host_port));
    match within("a connection", connected).await {
        Ok(mut stream) => {
            let _ = stream.write_all(b"last\n").await;
            rest(&mut stream).await.is_none_or(|all| all.is_empty())
        }
        // It was closed before we knew that it was open.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
        Err(error) => panic!("nobody listens on the host's port: {error}"),
    }
}

/// Waits until the session's first published port has no connection.
pub(crate) async fn none_is_open(session: &TestSession) {
    eventually(async || {
        let open = session.client().ports(&session.id).await.expect("a list").published[0].connections;
        if open == 0 { Ok(()) } else { Err(format!("{open} connections are open")) }
    })
    .await;
}

/// The name that a port's preview has.
pub(crate) fn preview_host(server: &Server<'_>, session: &TestSession, port: u16) -> String {
    format!("{port}-{}.localhost:{}", session.id, server.address().port())
}

/// `name` of what the room's server was asked.
pub(crate) fn header<'a>(asked: &'a Value, name: &str) -> Option<&'a str> {
    let all = asked["headers"].as_array().expect("headers");
    all.iter().find(|pair| pair[0] == name).and_then(|pair| pair[1].as_str())
}

/// What a server has in memory.
pub(crate) fn memory_kb(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a server that runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
