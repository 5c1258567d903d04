"""A command server as people write it: HTTP in Python, bwrap for every command.

Its arguments are the bwrap command line, without the command. It prints its address and serves until it is killed.
POST /exec {"argv": [...]} answers {"exit_code": n, "stdout": "...", "stderr": "..."}.
"""
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise head and body wait for each other.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        done = subprocess.run(sys.argv[1:] + request["argv"], capture_output=True, text=True)
        body = json.dumps({"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("127.0.0.1:%d" % server.server_address[1], flush=True)
server.serve_forever()
