"""The chart's containers `watch` and `publish` with their user, capabilities, token and role, beside
a real API server and jobs in the cgroups of pods: who hangs has an Event, labels are obeyed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from api_server import ADMIN, MISSING, api_server, kube_apiserver, write_kubeconfig
from kubernetes_chart import CHART, pod, rendered

from unhang.jobs.watch.of_pods import Cluster

PROJECT = Path(__file__).resolve().parents[2]
JOB = PROJECT / "tests" / "bench" / "inspect_job.py"
NODE, PATIENCE_S = "node-a", 400
GROUPS = Path("/sys/fs/cgroup")
GROUPS = GROUPS if (GROUPS / "cgroup.controllers").exists() else GROUPS / "pids"
# A mount namespace with the two folders that the container has of its node.
CONTAINER = """
set -e
mount --make-rprivate /
mount -t tmpfs none /run
mkdir -p "/run/${TOKENS#/var/run/}" /run/unhang-watch
mount --bind "$ACCOUNT" "/run/${TOKENS#/var/run/}"
mount --bind "$OUT" /run/unhang-watch
exec setpriv --reuid=0 --regid=0 --clear-groups --bounding-set="$CAPABILITIES" --inh-caps=-all \
 --no-new-privs env -i "$@"
"""
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} here"),
    pytest.mark.timeout(2400),  # the server is built on a new machine
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """With all objects of the chart."""
    program = kube_apiserver(PROJECT / ".cache" / "kubernetes")
    with api_server(program, tmp_path_factory.mktemp("server")) as server:
        server.make("/api/v1/namespaces", space("unhang"))
        for row in rendered(watch=True, configMaps=True, runtimeClassName=""):
            group, kind = row["apiVersion"], row["kind"]
            start = "/api/v1" if group == "v1" else f"/apis/{group}"
            if kind not in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
                start += f"/namespaces/{row['metadata'].get('namespace', 'unhang')}"
            server.make(f"{start}/{kind.lower()}s", row)
        nobody = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
        server.make("/api/v1/namespaces/unhang/serviceaccounts", nobody)
        yield server


def space(name, **labels):
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels_of(labels)},
    }


def labels_of(given):
    return {f"unhang/{name}": value for name, value in given.items()}


def make_pod(server, namespace, name, **labels):
    """Its uid."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels_of(labels)},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]},
    }
    (made,) = server.make(f"/api/v1/namespaces/{namespace}/pods", body)
    return made["metadata"]["uid"]


@contextlib.contextmanager
def job_of_pod(uid, scene, folder):
    """Two ranks in the cgroup of a pod; in `never` the last one sleeps before a collective."""
    group = GROUPS / f"kubepods-besteffort-pod{uid.replace('-', '_')}.slice"
    group.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {
        "OMP_NUM_THREADS": "1",
        "INSPECT_JOB_FOLDER": str(folder),
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = []
    try:
        for rank in ("0", "1"):
            ranks.append(
                subprocess.Popen(
                    [
                        *("sh", "-c", f'echo $$ >"{group}/cgroup.procs"; exec "$@"', "sh"),
                        *(sys.executable, str(JOB), scene, "1", "gloo"),
                    ],
                    env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        yield
    finally:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
        until = time.monotonic() + 30
        while (group / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.1)
        group.rmdir()


def started(server, name, folder, account, **values):
    """(a container of the chart, its variables), with its account's token in a folder."""
    (folder / "token").write_text(server.token("unhang", account))
    (folder / "ca.crt").write_bytes(server.authority.read_bytes())
    own = pod(rendered(runtimeClassName="", **values))["containers"]
    container = next(row for row in own if row["name"] == name)
    given = {row["name"]: row.get("value") or NODE for row in container["env"]}
    server_at = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": server.port}
    return container, given | server_at


@contextlib.contextmanager
def watching(server, folder, watch, account="unhang-watch"):
    """The container `watch` of a chart with this value; the file of its log."""
    folder.mkdir()
    places = {"ACCOUNT": folder / "account", "OUT": folder / "out"}
    for place in places.values():
        place.mkdir()
    container, given = started(server, "watch", places["ACCOUNT"], account, watch=watch)
    mounts = {row["name"]: row["mountPath"] for row in container["volumeMounts"]}
    added = container["securityContext"]["capabilities"]["add"]
    installed = Path(sys.executable).with_name("unhang")
    log = folder / "log"
    with open(log, "wb") as target:
        child = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", CONTAINER, "sh"]
            + [f"{name}={value}" for name, value in given.items()]
            + [str(installed), *container["command"][1:], "--every=1", "--no-progress=8"]
            + [f"--py-spy={installed.with_name('py-spy')}"],
            env={
                **os.environ,
                **{name: str(place) for name, place in places.items()},
                "TOKENS": mounts["token"],
                "CAPABILITIES": ",".join(["-all", *(f"+{name.lower()}" for name in added)]),
            },
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
        assert child.poll() is None, log.read_text()
    finally:
        child.terminate()
        child.wait(60)


def said_in(log, *words):
    """The log, once it has all these words."""
    until = time.monotonic() + PATIENCE_S
    while not all(word in (text := log.read_text()) for word in words):
        assert time.monotonic() < until, (words, text)
        time.sleep(0.5)
    return text


def events_of(server, namespace):
    code, answer = server.ask("GET", f"/api/v1/namespaces/{namespace}/events")
    assert code == 200, answer
    return answer["items"]


def test_a_job_that_hangs_has_an_event_on_its_pod_and_labels_are_obeyed(server, tmp_path):
    server.make("/api/v1/namespaces", space("team"), space("quiet", watch="off"))
    uids = {
        name: make_pod(server, *name.split("/"), **labels)
        for name, labels in (
            ("team/hangs", {}),
            ("team/trains", {"watch": "on"}),
            ("team/wanted", {"watch": "on"}),
            ("team/left-out", {"watch": "off"}),
            ("quiet/hangs", {}),
            ("quiet/wanted", {"watch": "on"}),
        )
    }
    with contextlib.ExitStack() as stack:
        jobs = stack.enter_context(contextlib.ExitStack())
        for name, uid in uids.items():
            scene = "healthy" if name == "team/trains" else "never"
            jobs.enter_context(job_of_pod(uid, scene, tmp_path))
        every = stack.enter_context(watching(server, tmp_path / "all", True))
        hung = [f"pod {name}: hung: rank 1" for name in ("team/hangs", "team/wanted")]
        left = ["team/left-out: left out: it has the label unhang/watch=off"]
        left.append("quiet/hangs: left out: it has the label unhang/watch=off")
        said = said_in(every, *hung, *left, "pod quiet/wanted: hung: rank 1")
        assert "pod team/trains: hung" not in said
        until = time.monotonic() + 60
        while len(events_of(server, "quiet") + events_of(server, "team")) < 3:
            assert time.monotonic() < until, every.read_text()
            time.sleep(0.5)
        until = time.monotonic() + 60
        while 'hung{watched_job="pod team/hangs"} 1.0' not in metrics(tmp_path / "all"):
            assert time.monotonic() < until, metrics(tmp_path / "all")
            time.sleep(0.5)
        chosen = stack.enter_context(watching(server, tmp_path / "labelled", "labelled"))
        said = said_in(
            chosen,
            "pod team/wanted: hung: rank 1",
            "pod team/hangs: left out: neither pod nor namespace has the label unhang/watch=on",
        )
        assert "pod team/hangs: hung" not in said
        wants = cluster_of_watch(tmp_path / "all", server)
        for name, phase in (("team/hangs", "Failed"), ("quiet/wanted", "Succeeded")):
            assert wants.how_they_ended([uids[name]]) == "not seen"
            has_phase(server, name, phase)
        assert wants.how_they_ended([uids["team/hangs"]]) == "failed"
        assert wants.how_they_ended([uids["quiet/wanted"]]) == "ended well"
        assert wants.how_they_ended([uids["quiet/wanted"], uids["team/wanted"]]) == "not seen"
        assert wants.how_they_ended([uids["quiet/wanted"], "deleted"]) == "failed"
        refused = stack.enter_context(watching(server, tmp_path / "refused", True, "nobody"))
        said = said_in(refused, f"pod {uids['team/hangs']}: hung: rank 1", "answered 403")
        assert said.count("names and labels of its pods are not known") == 1
        jobs.close()
        until = time.monotonic() + PATIENCE_S
        while len(rows := records(tmp_path / "all")) < 4:
            assert time.monotonic() < until, (rows, every.read_text())
            time.sleep(0.5)
    assert {row["job"]: [one["became"] for one in row["verdicts"]] for row in rows} == {
        "pod team/hangs": ["right"],
        "pod team/trains": [],
        "pod team/wanted": ["not known"],
        "pod quiet/wanted": ["wrong"],
    }
    found = [
        (row["involvedObject"]["namespace"], row["involvedObject"]["name"], row["reason"])
        for row in events_of(server, "team") + events_of(server, "quiet")
    ]
    # of both watchers that may write
    assert sorted(found) == [
        ("quiet", "wanted", "JobHung"),
        ("quiet", "wanted", "JobHung"),
        ("team", "hangs", "JobHung"),
        ("team", "wanted", "JobHung"),
        ("team", "wanted", "JobHung"),
    ]
    for row in events_of(server, "team"):
        assert row["message"].startswith(f"hung: rank 1 on {socket.gethostname()}: it sleeps in")
        assert row["involvedObject"]["uid"] in uids.values()
        assert (row["type"], row["source"]["host"]) == ("Warning", NODE)


def cluster_of_watch(folder, server):
    """As the watcher of this folder asks."""
    return Cluster("127.0.0.1", int(server.port), NODE, folder / "account")


def has_phase(server, name, phase):
    """What a kubelet writes when the containers have ended."""
    space, pod = name.split("/")
    path = f"/api/v1/namespaces/{space}/pods/{pod}/status"
    code, answer = server.ask("PATCH", path, {"status": {"phase": phase}}, kind="merge-patch+json")
    assert code == 200, answer


def records(folder):
    path = folder / "out" / "watched.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in rows if row["job"].startswith("pod ")]  # others run on this machine


def metrics(folder):
    path = folder / "out" / "unhang.prom"
    return path.read_text() if path.exists() else ""


@contextlib.contextmanager
def publishing(server, folder, account):
    """The container `publish` of the chart: its process, whose documents are folder/node.json."""
    container, given = started(server, "publish", folder, account, configMaps=True)
    given |= {"ACCOUNT": str(folder), "DOCUMENT": str(folder / "node.json")}
    script = CHART / "files" / Path(container["command"][-1]).name
    command = ["/usr/bin/python3", "-I", script]
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def test_what_is_published_is_judged_by_the_page_s_own_command(server, tmp_path):
    """Of two documents of a node the last one, which is as large as one may be."""
    recorded = PROJECT / "tests" / "fixtures" / "h200x4" / "node.json"
    facts = json.loads(recorded.read_text())["facts"]
    facts["sections"]["node"]["hostname"] = "gpu001"
    with publishing(server, tmp_path, "unhang-watch") as running:
        for text in (json.dumps({"schema": "none"}), json.dumps(facts).ljust(1_000_000)):
            (tmp_path / "new").write_text(text)
            (tmp_path / "new").replace(tmp_path / "node.json")
            said = running.stdout.readline()
            assert said == f"{NODE}: {len(text)} bytes are in its ConfigMap\n"
    with publishing(server, tmp_path, "nobody") as running:
        assert "tried again in 60 s: the API server answered 403" in running.stdout.readline()
    cluster = {"server": server.address, "certificate-authority": str(server.authority)}
    config = write_kubeconfig(tmp_path / "config", cluster, {"token": ADMIN})
    page = (PROJECT / "docs" / "kubernetes.md").read_text()
    (command,) = re.findall(r"^ +(kubectl .* get configmaps .* \| unhang judge -)$", page, re.M)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        f"{command} -o json --out {tmp_path}/run",
        env={**os.environ, "KUBECONFIG": str(config), "PATH": path},
        shell=True,
        stdout=subprocess.PIPE,
    )
    assert "gpu001" in json.dumps(json.loads(done.stdout)["node_verdicts"])


def test_the_account_may_do_nothing_else(server):
    token = server.token("unhang", "unhang-watch")
    answers = {
        (method, path): server.ask(method, path, {} if method == "POST" else None, token)[0]
        for method, path in (
            ("GET", "/api/v1/pods"),
            ("GET", "/api/v1/namespaces/unhang"),
            ("GET", "/api/v1/namespaces"),
            ("GET", "/api/v1/namespaces/unhang/secrets"),
            ("GET", "/api/v1/namespaces/unhang/events"),
            ("GET", "/api/v1/nodes"),
            ("GET", "/api/v1/namespaces/unhang-results/configmaps"),
            ("DELETE", "/api/v1/namespaces/unhang-results/configmaps/node-a"),
            ("POST", "/api/v1/namespaces/unhang/configmaps"),
            ("POST", "/api/v1/namespaces/unhang/pods"),
            ("DELETE", "/api/v1/namespaces/unhang/pods/x"),
        )
    }
    assert list(answers.values()) == [200, 200, *[403] * 9]
