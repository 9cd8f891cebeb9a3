"""Serves a folder over HTTP like a package mirror, and fails in the ways that it is told. Run
inside the test bed's network:

    mirror.py FOLDER ADDRESS PORT FAULTS

FAULTS is a JSON file, read at each request: {"missing": "text in a path"} answers 404, {"stalls":
"text"} sends a few bytes and then nothing more.
"""

from __future__ import annotations

import http.server
import json
import pathlib
import sys
import threading


class Mirror(http.server.SimpleHTTPRequestHandler):
    """One request."""

    def do_GET(self):
        """Answers a GET; called by http.server."""
        faults = json.loads(pathlib.Path(sys.argv[4]).read_text() or "{}")
        if faults.get("missing") and faults["missing"] in self.path:
            return self.send_error(404)
        if faults.get("stalls") and faults["stalls"] in self.path:
            self.send_response(200)
            self.send_header(
                "Content-Length", str(pathlib.Path(self.translate_path(self.path)).stat().st_size)
            )
            self.end_headers()
            self.wfile.write(b"!")
            self.wfile.flush()
            threading.Event().wait()  # until the test bed ends
        return super().do_GET()

    def log_message(self, *_arguments):
        """Logs nothing."""


def main():
    """Serves until it is killed."""

    def handler(*arguments):
        return Mirror(*arguments, directory=sys.argv[1])

    server = http.server.ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), handler)
    server.daemon_threads = True
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
