"""A stateful stand-in for Kubernetes' API server, with what kubectl uses: discovery, nodes, pods,
evictions with disruption budgets, conflicts.

It is no real API server: its answers follow the API's reference, for the requests that kubectl
1.37.2 was seen to send.
"""

from __future__ import annotations

import contextlib
import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

POLICY = {"groupVersion": "policy/v1", "version": "v1"}
DISCOVERY = {
    "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.2"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [{"name": "policy", "versions": [POLICY], "preferredVersion": POLICY}],
    },
    "/apis/policy/v1": {"kind": "APIResourceList", "groupVersion": "policy/v1", "resources": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": name, "singularName": "", "namespaced": name != "nodes", "kind": kind, **more}
            for name, kind, more in (
                ("nodes", "Node", {"verbs": ["get", "list", "patch"]}),
                ("pods", "Pod", {"verbs": ["get", "list"]}),
                (
                    "pods/eviction",
                    "Eviction",
                    {"verbs": ["create"], "group": "policy", "version": "v1"},
                ),
            )
        ],
    },
}


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
    """A pod of the namespace `work`. owner: kind of its controller, None for a bare pod."""
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
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
        },
        "status": {"phase": phase},
    }


class Cluster:
    """nodes, pods: by name. budget: evictions that are allowed, None for any. conflicts: patches
    that come too late. away: requests that are refused."""

    def __init__(self, *things):
        self.nodes = {one["metadata"]["name"]: one for one in things if one["kind"] == "Node"}
        self.pods = {one["metadata"]["name"]: one for one in things if one["kind"] == "Pod"}
        self.budget = None
        self.conflicts = 0
        self.away = 0
        self.writes = []
        self.lock = threading.Lock()

    def patch_node(self, name, body, dry):
        """(code, answer) of a merge patch."""
        node = self.nodes.get(name)
        if node is None:
            return status(404, "NotFound", f'nodes "{name}" not found')
        if self.conflicts:
            self.conflicts -= 1
            bump(node)
        asked = body.get("metadata", {}).pop("resourceVersion", None)
        if asked is not None and asked != node["metadata"]["resourceVersion"]:
            return status(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on nodes "{name}": the object has been modified',
            )
        changed = merge(copy.deepcopy(node), body)
        if not dry:
            self.writes.append(("patch", name))
            bump(changed)
            self.nodes[name] = changed
        return 200, changed

    def evict(self, name):
        """(code, answer) of an eviction."""
        if name not in self.pods:
            return status(404, "NotFound", f'pods "{name}" not found')
        if self.budget is not None and self.budget <= 0:
            return status(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
            )
        self.budget = None if self.budget is None else self.budget - 1
        self.writes.append(("evict", name))
        del self.pods[name]
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def select(self, query):
        """Pods by their node."""
        node = query.get("fieldSelector", [""])[0].partition("spec.nodeName=")[2]
        return [pod for pod in self.pods.values() if node in ("", pod["spec"]["nodeName"])]


def status(code, reason, message):
    """An error in the API's form."""
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }


def bump(thing):
    """A new resourceVersion."""
    thing["metadata"]["resourceVersion"] = str(int(thing["metadata"]["resourceVersion"]) + 1)


def merge(value, patch):
    """RFC 7396."""
    for key, given in patch.items():
        if given is None:
            value.pop(key, None)
        elif isinstance(given, dict):
            value[key] = merge(value.get(key) if isinstance(value.get(key), dict) else {}, given)
        else:
            value[key] = given
    return value


def handler_of(cluster):
    """A request handler over the cluster."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            """Prints nothing on the test's output."""

        def answer(self, code, body):
            text = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def serve(self):
            place = urlsplit(self.path)
            query = parse_qs(place.query)
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            with cluster.lock:
                if cluster.away:
                    cluster.away -= 1
                    return self.answer(
                        *status(
                            503,
                            "ServiceUnavailable",
                            "the server is currently unable to handle the request",
                        )
                    )
                return self.answer(
                    *respond(cluster, self.command, place.path.rstrip("/"), query, body)
                )

        do_GET = do_POST = do_PATCH = serve

    return Handler


def respond(cluster, method, path, query, body):
    """(code, answer) of a request."""
    parts = path.split("/")
    if method == "GET" and path in DISCOVERY:
        return 200, DISCOVERY[path]
    if path.startswith("/api/v1/nodes/") and len(parts) == 5:
        if method == "PATCH":
            return cluster.patch_node(parts[4], body, "dryRun" in query)
        found = cluster.nodes.get(parts[4])
        return (200, found) if found else status(404, "NotFound", f'nodes "{parts[4]}" not found')
    if method == "GET" and path == "/api/v1/nodes":
        return 200, {
            "kind": "NodeList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "1"},
            "items": list(cluster.nodes.values()),
        }
    if method == "GET" and path == "/api/v1/pods":
        return 200, {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "1"},
            "items": cluster.select(query),
        }
    if method == "POST" and path.endswith("/eviction"):
        return cluster.evict(parts[6])
    if (
        method == "GET"
        and path.startswith("/api/v1/namespaces/")
        and len(parts) == 7
        and parts[6] in cluster.pods
    ):
        return 200, cluster.pods[parts[6]]
    if method == "GET" and path.startswith("/apis/apps/v1/namespaces/work/daemonsets/"):
        return 200, {"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": parts[-1]}}
    return status(404, "NotFound", f"{method} {path}")


@contextlib.contextmanager
def serving(cluster, folder):
    """The path of a kubeconfig for the cluster."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(cluster))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(json.dumps(config))
    try:
        yield path
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
