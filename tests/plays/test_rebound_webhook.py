"""DNS rebinding of a webhook, with a resolver of our own in a network of its own: the name leads to
another machine at the second question."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
CHILD = r"""
import http.server, json, socket, threading
from unhang.core.commands.hooks import post

asked, got = [], []
resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
resolver.bind(("127.0.0.1", 53))

def answer():
    while True:
        query, peer = resolver.recvfrom(512)
        end = query.index(b"\0", 12) + 5
        record = b""
        if query[end - 3] == 1:  # A; any other kind has no record
            record = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + bytes([127, 0, 0, 3 if asked else 2])
            asked.append(peer)
        resolver.sendto(query[:2] + b"\x81\x80\0\1\0" + bytes([bool(record)]) + b"\0\0\0\0" + query[12:end] + record, peer)

def serve(address, status):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append([address, self.path])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Location", "http://hook.test:8080/again")
            self.send_header("X-Inner", "token=S3CRET")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer((address, 8080), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()

threading.Thread(target=answer, daemon=True).start()
serve("127.0.0.2", 302)
serve("127.0.0.3", 401)
said = [post("http://hook.test:8080/S3CRET", {}) for _ in range(2)]
print(json.dumps([said, got, len(asked)]))
"""
INSIDE = 'ip link set lo up && mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'


def test_a_message_asks_for_its_name_once_follows_nothing_and_shows_no_answer(tmp_path):
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    inside = [
        "unshare",
        "--mount",
        "--net",
        "sh",
        "-c",
        INSIDE,
        "sh",
        str(tmp_path / "resolv.conf"),
        sys.executable,
        "-c",
        CHILD,
    ]
    done = subprocess.run(
        inside,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(TOOLS), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        check=True,
    )
    said, got, asked = json.loads(done.stdout)
    assert said == ["it answered 302, not 2xx", "it answered 401, not 2xx"]
    assert got == [["127.0.0.2", "/S3CRET"], ["127.0.0.3", "/S3CRET"]], (
        "one message for each call, at the address that the name had then"
    )
    assert asked == 2
