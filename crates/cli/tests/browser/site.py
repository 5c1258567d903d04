"""A web site that keeps nothing to itself: whoever gets as far as to it may read all of it.

What it says is its secret, and it says so in every form that pages can take something in.
"""
import base64, hashlib, http.server, json, sys, threading, urllib.parse

PORT, SECRET = int(sys.argv[1]), sys.argv[2]
asked, go = [], threading.Event()

INDEX = """<!doctype html><meta charset=utf-8><title>index</title>
<link rel=stylesheet href=style.css><img id=picture src="picture.svg"><script src="./script.js"></script>
<p id=text>%(secret)s</p><a id=next href="deeper/next.html?x=1#y">next</a>"""
NEXT = """<!doctype html><title>next</title><a id=back href="../?again">back</a>"""
# Tells whoever has put it into a frame, and gives up what keeps it apart from others below the same name.
FRAMED = """<!doctype html><title>framed</title><p>%(secret)s</p>
<script>try { if (isSecureContext) document.domain = location.hostname.split('.').slice(1).join('.') } catch (e) {}
if (opener) opener.postMessage('here', '*'); else parent.postMessage('%(secret)s', '*');</script>"""
WORKER = """self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', event => event.waitUntil(clients.claim()));
self.addEventListener('fetch', event => event.respondWith(new Response('the worker of %(secret)s')));"""
ASKER = """fetch(decodeURIComponent(location.search.slice(1)), { credentials: 'include' })
.then(answer => answer.text()).then(postMessage, error => postMessage(String(error)));"""
PAGES = {
    '/': ('text/html', INDEX), '/deeper/next.html': ('text/html', NEXT), '/framed': ('text/html', FRAMED),
    '/opened': ('text/html', FRAMED), '/worker.js': ('text/javascript', WORKER),
    '/asker.js': ('text/javascript', ASKER),
    '/script.js': ('text/javascript', "window.of_script = '%(secret)s';"),
    '/style.css': ('text/css', "body { --of-style: %(secret)s; }"),
    '/picture.svg': ('image/svg+xml', '<svg xmlns="http://www.w3.org/2000/svg" width="77" height="7"></svg>'),
}


class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *words):
        pass

    def head(self, kind, headers=(), status=200):
        self.send_response(status)
        origin = self.headers.get('origin')
        for name, value in [
            ('Content-Type', kind), ('Access-Control-Allow-Origin', origin or '*'), ('Access-Control-Allow-Credentials', 'true'),
            ('Access-Control-Allow-Headers', 'authorization, x-mine'), ('Access-Control-Allow-Methods', '*'),
            ('Cross-Origin-Resource-Policy', 'cross-origin'), ('Service-Worker-Allowed', '/'), ('Origin-Agent-Cluster', '?0'),
            ('Cache-Control', 'no-store'), *headers,
        ]:
            self.send_header(name, value)

    def answer(self, kind, body, headers=(), status=200):
        self.head(kind, [*headers, ('Content-Length', str(len(body)))], status)
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, piece):
        self.wfile.write(b'%x\r\n%s\r\n' % (len(piece), piece))
        self.wfile.flush()

    def pieces(self, kind):
        self.head(kind, [('Transfer-Encoding', 'chunked')])
        self.end_headers()
        self.chunk(b'data: first %s\n\n' % SECRET.encode())
        if 'wait' in self.path:
            go.wait(30)
        self.chunk(b'data: second\n\n')
        self.chunk(b'')

    def websocket(self):
        """Says the secret, then what it hears in capital letters."""
        key = self.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest())
        self.wfile.write(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + accept + b'\r\n\r\n')
        say = lambda data: self.wfile.write(bytes([0x81, len(data)]) + data)
        say(SECRET.encode())
        self.close_connection = True
        while len(head := self.rfile.read(2)) == 2 and head[0] & 15 != 8:
            mask, data = self.rfile.read(4), self.rfile.read(head[1] & 127)
            say(bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)).upper())

    def do_GET(self):
        path, _, query = self.path.partition('?')
        if path == '/asked':
            return self.answer('application/json', json.dumps(asked).encode())
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked.append({'method': self.command, 'path': self.path, 'headers': headers})
        self.rfile.read(int(headers.get('content-length', 0)))
        if headers.get('upgrade') == 'websocket':
            self.websocket()
        elif path in PAGES:
            kind, text = PAGES[path]
            self.answer(kind, (text % {'secret': SECRET}).encode())
        elif path == '/cookie':
            self.answer('text/plain', b'set', [('Set-Cookie', urllib.parse.unquote(query))])
        elif path == '/away':
            self.answer('text/plain', b'', [('Location', query)], 302)
        elif path == '/stream':
            self.pieces('text/plain')
        elif path == '/events':
            self.pieces('text/event-stream')
        elif path == '/go':
            go.set()
            self.answer('text/plain', b'gone')
        else:
            self.answer('text/plain', SECRET.encode())

    do_POST = do_PUT = do_OPTIONS = do_HEAD = do_GET


server = http.server.ThreadingHTTPServer(('127.0.0.1', PORT), Site)
print('listening', flush=True)
server.serve_forever()
