"""Nodes and pods on a real API server of Kubernetes, behind a proxy: a test sees what kubectl
writes, and can do something, or answer, just before a request."""

from __future__ import annotations

import contextlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from api_server import MISSING, Server, api_server, kube_apiserver, write_kubeconfig

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kubernetes"
NODES, WORK = "/api/v1/nodes", "/api/v1/namespaces/work"
BUDGETS = "/apis/policy/v1beta1/namespaces/work/poddisruptionbudgets"
DAEMON_SETS = "/apis/apps/v1/namespaces/work/daemonsets"
AWAY = (503, "text/plain", b"no backend")  # of a load balancer before the API server
NEEDED = [
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} here"),
    pytest.mark.timeout(2400),  # the server is built on a new machine
]


def make_node(name, **labels):
    """A node that is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "resourceVersion": "1", "labels": labels, "annotations": {}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def make_pod(name, node, owner="ReplicaSet", gpus=0, phase="Running", **labels):
    """A pod of the namespace `work`, which no kubelet need end. owner: kind of its controller, None
    for a bare pod."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    owners = (
        [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": True}]
        if owner
        else []
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "work",
            "resourceVersion": "1",
            "labels": {"app": name, **labels},
            "ownerReferences": owners,
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
        },
        # a disruption budget does not protect a pod that is not ready
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
    }


class Cluster:
    """writes: ("patch", node) and ("evict", pod) that the server has accepted from kubectl; address:
    of the proxy."""

    def __init__(self, server: Server):
        self.server, self.address = server, ""
        self.writes: list[tuple[str, str]] = []
        self._acts: list[tuple[str, re.Pattern, object]] = []

    def add(self, *things):
        """Makes nodes and pods, also their status."""
        for thing in things:
            metadata = {
                key: value for key, value in thing["metadata"].items() if key != "resourceVersion"
            }
            is_node = thing["kind"] == "Node"
            self.server.make(NODES if is_node else f"{WORK}/pods", {**thing, "metadata": metadata})
            if not is_node:
                path = f"{WORK}/pods/{metadata['name']}/status"
                self.change(path, {"status": thing["status"]})

    def change(self, path, body):
        """A merge patch by somebody else."""
        self._asked("PATCH", path, body, kind="merge-patch+json")

    def change_node(self, name, body):
        """The same of a node."""
        self.change(f"{NODES}/{name}", body)

    def end(self, pod):
        """The pod ends, and is gone."""
        self._asked("DELETE", f"{WORK}/pods/{pod}?gracePeriodSeconds=0")

    def allow_evictions(self, pod, number):
        """The disruption budget of the pod, as its controller would count it."""
        selector = {"matchLabels": {"app": pod}}
        budget = {
            "apiVersion": "policy/v1beta1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": pod},
            "spec": {"minAvailable": 1, "selector": selector},
        }
        if self.server.ask("GET", f"{BUDGETS}/{pod}")[0] == 404:
            self.server.make(BUDGETS, budget)
        counted = {"currentHealthy": 1 + number, "desiredHealthy": 1, "expectedPods": 1 + number}
        status = {"disruptionsAllowed": number, "observedGeneration": 1, **counted}
        self.change(f"{BUDGETS}/{pod}/status", {"status": status})

    def node(self, name):
        """As the server has it."""
        return self._asked("GET", f"{NODES}/{name}")

    def pods(self):
        """Names of all pods."""
        return sorted(
            row["metadata"]["name"] for row in self._asked("GET", f"{WORK}/pods")["items"]
        )

    def clear(self):
        """Removes what a test has made."""
        for path in (f"{WORK}/pods?gracePeriodSeconds=0", NODES, BUDGETS):
            self._asked("DELETE", path)

    def before(self, method, ending, acts):
        """Before each request with this method and end of its path, the next of the acts is called;
        if it returns (status, type, content), that is the answer. Acts that are over count for
        nothing."""
        self._acts.append((method, re.compile(f"(?:{ending})$"), iter(acts)))

    def answer(self, method, path, body, headers):
        """(status, type, content) of a request of kubectl."""
        bare, _, query = path.partition("?")
        for wanted, pattern, acts in self._acts:
            if wanted in ("*", method) and pattern.search(bare) and (act := next(acts, None)):
                found = act()
                if found:
                    return found
        answered = self.server.send(method, path, body, headers)
        if method != "GET" and answered[0] < 300 and "dryRun" not in query:
            self.writes.append(
                ("evict", bare.split("/")[-2])
                if bare.endswith("/eviction")
                else (method.lower(), bare.split("/")[-1])
            )
        return answered

    def _asked(self, *arguments, **options):
        code, answer = self.server.ask(*arguments, **options)
        assert code == 200, answer
        return answer

    def kubeconfig(self, folder):
        """The path of a kubeconfig for the proxy, which adds the administrator's token."""
        return write_kubeconfig(folder / "kubeconfig", {"server": self.address}, {})


def _handler_of(cluster):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            """Prints nothing on the test's output."""

        def pass_on(self):
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size) if size else None
            kept = {
                name: value
                for name in ("Accept", "Content-Type")
                if (value := self.headers.get(name))
            }
            code, kind, content = cluster.answer(self.command, self.path, body, kept)
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = pass_on

    return Handler


@contextlib.contextmanager
def cluster_on(server):
    """An empty Cluster, which is empty again at the end."""
    cluster = Cluster(server)
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(cluster))
    cluster.address = f"http://127.0.0.1:{proxy.server_port}"
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
        cluster.clear()


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory):
    """A real API server with the namespace `work` and a DaemonSet in it."""
    with api_server(kube_apiserver(CACHE), tmp_path_factory.mktemp("server")) as server:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}}
        server.make("/api/v1/namespaces", space)
        labels = {"app": "agent"}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        spec = {"selector": {"matchLabels": labels}, "template": template}
        agent = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "o"},
            "spec": spec,
        }
        server.make(DAEMON_SETS, agent)
        yield server


@pytest.fixture
def cluster(kubernetes):
    """A Cluster of this test alone."""
    with cluster_on(kubernetes) as cluster:
        yield cluster
