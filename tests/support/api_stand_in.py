"""What answers in place of Kubernetes' API server, over TLS: any answer that a test wants."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from unhang.jobs.watch.of_pods import Cluster

OPENSSL = shutil.which("openssl")


@contextlib.contextmanager
def answering(folder, answer):
    """The cluster whose server answers a path by answer(path): (status, value or bytes)."""
    key, certificate = folder / "key", folder / "ca.crt"
    made = (
        f"{OPENSSL} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext"
        f" subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    )
    subprocess.run(shlex.split(made), check=True, capture_output=True, timeout=60)
    (folder / "token").write_text("t\n")

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            status, value = answer(self.path)
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_given):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    try:
        yield Cluster("127.0.0.1", server.server_port, "node-a", folder)
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def answer_of_a_pod(of_pod=None, of_namespace=None):
    """answer(path) for one pod `train-0` with uid u in the namespace team; labels of both."""
    metadata = {"namespace": "team", "name": "train-0", "uid": "u", "labels": of_pod}
    rows = [{"metadata": metadata}, {"metadata": {**metadata, "uid": "other"}}]
    space = {"metadata": {"name": "team", "labels": of_namespace}}

    def answer(path):
        if path.endswith("/namespaces/team"):
            return 200, {"kind": "PartialObjectMetadata", **space}
        assert "fieldSelector=spec.nodeName%3Dnode-a" in path
        return 200, {"kind": "PartialObjectMetadataList", "items": rows}

    return answer
