"""The pods of watched jobs, asked of Kubernetes' API server as the service account of the pod in
which the watch runs: their names, whether they are to be watched, and Events on them.

https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unhang.core.errors import UserError
from unhang.core.secrets_in_text import without_secrets
from unhang.core.strict_json import parse_strictly
from unhang.core.text import visible
from unhang.jobs.watch.record import FAILED, UNSEEN, WELL

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NODE = "UNHANG_NODE"
LABEL, WATCHED, LEFT_OUT = "unhang/watch", "on", "off"
# Names and labels alone: what a pod's containers are given is no business of this process.
METADATA = "PartialObjectMetadata"
JSON = "application/json"
ANSWER_S = 10.0
MOST_BYTES = 16 << 20
MOST_MESSAGE = 1024  # characters, of an Event
MOST_MASKED = 65536  # characters of an answer that is no good
REASON = "JobHung"


@dataclass(frozen=True)
class Pod:
    """A pod of this node. wants: WATCHED, LEFT_OUT or "", by its own label, else its
    namespace's."""

    cluster: Cluster
    namespace: str
    name: str
    uid: str
    wants: str

    def tell(self, message: str) -> None:
        """Writes a Warning, which `kubectl describe pod` shows. Raises UserError."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        of = {"kind": "Pod", "apiVersion": "v1", "namespace": self.namespace}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.name[:200]}.", "namespace": self.namespace},
            "involvedObject": {**of, "name": self.name, "uid": self.uid},
            "type": "Warning",
            "reason": REASON,
            "message": visible(message, MOST_MESSAGE),
            "source": {"component": "unhang-watch", "host": self.cluster.node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self.cluster.ask(f"/api/v1/namespaces/{quote(self.namespace)}/events", "Event", event)


@dataclass(frozen=True)
class Cluster:
    """host, port: of the API server; node: this node's name in it; account: the folder with the
    token, which the kubelet renews, and the server's authority."""

    host: str
    port: int
    node: str
    account: Path = ACCOUNT

    def pods(self, uids: Iterable[str]) -> list[Pod]:
        """Those of these pods that are on this node. Raises UserError."""
        wanted = set(uids)
        rows = [row for row in self._on_node() if row["uid"] in wanted]
        spaces = {
            name: _named(self.ask(f"/api/v1/namespaces/{quote(name)}", METADATA), ("name",))
            for name in {row["namespace"] for row in rows}
        }
        return [
            Pod(self, space := row["namespace"], row["name"], row["uid"], _wish(row, spaces[space]))
            for row in rows
        ]

    def how_they_ended(self, uids: Iterable[str]) -> str:
        """FAILED for a job with a pod that failed or was deleted, WELL if all of its pods ended
        well, UNSEEN otherwise, as of containers that are started again."""
        wanted = set(uids)
        try:
            there, failed, well = (
                wanted & {row["uid"] for row in self._on_node(phase)}
                for phase in ("", "%2Cstatus.phase%3DFailed", "%2Cstatus.phase%3DSucceeded")
            )
        except UserError:
            return UNSEEN
        if failed or there != wanted:
            return FAILED
        return WELL if well == wanted else UNSEEN

    def _on_node(self, more: str = "") -> list[Mapping[str, Any]]:
        # from the server's cache: a thousand nodes may ask at once
        path = f"/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3D{quote(self.node)}"
        rows = self.ask(f"{path}{more}", f"{METADATA}List").get("items", "")
        if not isinstance(rows, (list, type(None))):
            raise _other("a list of items", rows)
        return [_named(row, ("namespace", "name", "uid")) for row in rows or ()]

    def ask(self, path: str, kind: str, body: object = None) -> Mapping[str, Any]:
        """The answer to a GET, or to a POST of this body: an object of this kind. Raises
        UserError."""
        try:
            token = (self.account / "token").read_text(encoding="ascii").strip()
            trust = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
            link = http.client.HTTPSConnection(
                self.host, self.port, timeout=ANSWER_S, context=trust
            )
            headers = {"Authorization": f"Bearer {token}"}
            with contextlib.closing(link):
                if body is None:
                    headers["Accept"] = f"{JSON};as={kind};g=meta.k8s.io;v=v1"
                    link.request("GET", path, headers=headers)
                else:
                    headers |= {"Accept": JSON, "Content-Type": JSON}
                    link.request("POST", path, json.dumps(body), headers)
                answer = link.getresponse()
                text = answer.read(MOST_BYTES).decode("utf-8", "replace")
            if answer.status not in (200, 201):
                raise UserError(f"the API server answered {answer.status}: {_masked(text)}")
            found = parse_strictly(text, half_characters=True)
        except (OSError, ValueError, http.client.HTTPException) as problem:
            why = _masked(str(problem) or type(problem).__name__)
            raise UserError(f"the API server did not answer: {why}") from None
        if not isinstance(found, dict) or found.get("kind") != kind:
            raise _other(f"a {kind}", found)
        return found


def _masked(text: str) -> str:
    return visible(without_secrets(text[:MOST_MASKED]), 300)


def _other(wanted: str, found: Any) -> UserError:
    shown = _masked(json.dumps(found))
    return UserError(f"the API server did not give {wanted}, but {shown}")


def _named(row: Any, names: Iterable[str]) -> Mapping[str, Any]:
    """The metadata of an object, which has these names and perhaps labels. Raises UserError."""
    found = row.get("metadata") if isinstance(row, dict) else None
    if (
        not isinstance(found, dict)
        or not all(isinstance(found.get(name), str) for name in names)
        or not isinstance(found.get("labels") or {}, dict)
    ):
        raise _other(f"metadata with {', '.join(names)}", row)
    return found


def _wish(pod: Mapping[str, Any], namespace: Mapping[str, Any]) -> str:
    for row in (pod, namespace):
        wish = (row.get("labels") or {}).get(LABEL)
        if wish in (WATCHED, LEFT_OUT):
            return str(wish)
    return ""


def cluster_of(environ: Mapping[str, str], account: Path = ACCOUNT) -> Cluster:
    """The cluster in one of whose pods this runs. Raises UserError."""
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    node = environ.get(NODE)
    if not (host and port and port.isdigit() and node and (account / "token").is_file()):
        raise UserError(
            f"--pods needs a pod with a service account and with the node's name in {NODE}, and"
            " this is none; docs/kubernetes.md has a manifest"
        )
    return Cluster(host, int(port), node, account)
