"""Keeps the collector's last document in the ConfigMap of this node, where `kubectl get configmaps`
shows it. It reads one file and asks the API server for one thing: to write that ConfigMap.

https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import sys
import time
from pathlib import Path

DOCUMENT = Path(os.environ.get("DOCUMENT", "/work/node.json"))
ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
MOST_BYTES = 1_000_000  # a ConfigMap has room for 1 MiB
LOOK_S, AGAIN_S, ANSWER_S = 5, 60, 30


def config_map(node: str, text: str) -> dict[str, object]:
    """The object; a node's name is one that a ConfigMap can have."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": node, "labels": {"app.kubernetes.io/name": "unhang-node"}},
        "data": {"node.json": text},
    }


def put(node: str, text: str) -> None:
    """Makes the ConfigMap or replaces it. Raises OSError or HTTPException."""
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    link = http.client.HTTPSConnection(
        os.environ["KUBERNETES_SERVICE_HOST"],
        int(os.environ["KUBERNETES_SERVICE_PORT"]),
        timeout=ANSWER_S,
        context=trust,
    )
    path = f"/api/v1/namespaces/{os.environ['NAMESPACE']}/configmaps/{node}"
    token = (ACCOUNT / "token").read_text(encoding="ascii").strip()  # the kubelet renews it
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/apply-patch+yaml",  # JSON is YAML
    }
    with contextlib.closing(link):
        body = json.dumps(config_map(node, text))
        link.request("PATCH", f"{path}?fieldManager=unhang&force=true", body, headers)
        answer = link.getresponse()
        said = answer.read(1000).decode("utf-8", "replace")
    if answer.status not in (200, 201):
        raise OSError(f"the API server answered {answer.status}: {said!r}")


def published(node: str, text: str) -> bool:
    """Whether the ConfigMap has this document now; the log says so, or why not."""
    size = len(text.encode())
    if size > MOST_BYTES:
        say(f"{node}: not published: {size} bytes do not fit into a ConfigMap")
        return True
    try:
        put(node, text)
    except (OSError, http.client.HTTPException) as problem:
        say(f"{node}: not published, tried again in {AGAIN_S} s: {problem}")
        return False
    say(f"{node}: {size} bytes are in its ConfigMap")
    return True


def say(line: str) -> None:
    """One line of the container's log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Looks for a new document until the pod ends."""
    node, seen = os.environ["NODE_NAME"], 0
    while True:
        with contextlib.suppress(FileNotFoundError):  # before the first reading
            when = DOCUMENT.stat().st_mtime_ns
            if when != seen:
                text = DOCUMENT.read_text(encoding="utf-8")
                if published(node, text):
                    seen = when
                else:
                    time.sleep(AGAIN_S)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
