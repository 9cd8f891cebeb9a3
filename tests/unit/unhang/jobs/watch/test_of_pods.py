"""Where the API server of Kubernetes is, what its labels mean, and that one that does not answer is
said. tests/nodes/test_watch_in_kubernetes.py asks a real one."""

from __future__ import annotations

import argparse
import socket

import pytest
from api_stand_in import answer_of_a_pod, answering

from unhang.core.errors import UserError
from unhang.jobs.commands import watch
from unhang.jobs.watch.of_pods import Cluster, Pod, cluster_of
from unhang.jobs.watch.record import UNSEEN

INSIDE = {
    "KUBERNETES_SERVICE_HOST": "fd00::1",
    "KUBERNETES_SERVICE_PORT": "443",
    "UNHANG_NODE": "node-a",
}


@pytest.fixture
def account(tmp_path):
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "ca.crt").write_text("")
    return tmp_path


def test_the_server_is_the_one_of_the_pod(account):
    assert cluster_of(INSIDE, account) == Cluster("fd00::1", 443, "node-a", account)


@pytest.mark.parametrize("name", [*INSIDE, "token"])
def test_outside_of_a_pod_the_option_is_refused(name, account, tmp_path):
    if name == "token":
        (tmp_path / "token").unlink()
    given = {key: value for key, value in INSIDE.items() if key != name}
    with pytest.raises(UserError, match=r"--pods needs a pod with a service account"):
        cluster_of(given, account)


def test_the_option_needs_all():
    parser = argparse.ArgumentParser()
    watch.add_arguments(parser)
    with pytest.raises(UserError, match="--pods needs --all"):
        watch.run(parser.parse_args(["--pods", "all", "--pid", "1"]))


def test_a_server_that_does_not_answer_is_said(account):
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    (account / "ca.crt").unlink()
    for where in (account, account / "absent"):
        with pytest.raises(UserError, match="the API server did not answer: "):
            Cluster("127.0.0.1", port, "node-a", where).pods(["u"])


@pytest.mark.parametrize(
    ("of_pod", "of_namespace", "wants"),
    [
        (None, None, ""),
        ({"unhang/watch": "on"}, {"unhang/watch": "off"}, "on"),
        ({"unhang/watch": "off"}, {"unhang/watch": "on"}, "off"),
        ({"app": "x"}, {"unhang/watch": "on"}, "on"),
        ({"unhang/watch": "maybe"}, {"unhang/watch": "off"}, "off"),
        ({"unhang/watch": "maybe"}, None, ""),
    ],
)
def test_a_pod_s_own_label_counts_before_its_namespace_s(of_pod, of_namespace, wants, tmp_path):
    with answering(tmp_path, answer_of_a_pod(of_pod, of_namespace)) as cluster:
        (pod,) = cluster.pods(["u", "elsewhere"])
    assert (pod.namespace, pod.name, pod.wants) == ("team", "train-0", wants)


LIST, ONE = "PartialObjectMetadataList", "PartialObjectMetadata"
ROW = {"namespace": "team", "name": "train-0", "uid": "u"}
STRANGE = [
    {"kind": "Status"},
    {"kind": "Status", "items": []},
    {"kind": LIST},
    {"kind": LIST, "items": {}},
    {"kind": LIST, "items": 7},
    {"kind": LIST, "items": [None]},
    {"kind": LIST, "items": [{}]},
    {"kind": LIST, "items": [{"metadata": []}]},
    *({"kind": LIST, "items": [{"metadata": {**ROW, name: None}}]} for name in ROW),
    {"kind": LIST, "items": [{"metadata": {**ROW, "labels": ["x"]}}]},
    {"items": [{"metadata": ROW}]},
    [],
    7,
    None,
    b"",
    b"<html>",
    b"[" * 100_000,
    b'{"kind": "%s", "items": [' % LIST.encode(),
    b"\xff",
]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: str(value)[:60])
def test_an_answer_of_another_form_is_one_kind_of_error_wherever_it_comes(value, tmp_path):
    right = answer_of_a_pod()
    spoilt = ["/pods?"]

    def answer(path):
        return (200, value) if any(part in path for part in spoilt) else right(path)

    with answering(tmp_path, answer) as cluster:
        with pytest.raises(UserError, match="API server"):
            cluster.pods(["u"])
        assert cluster.how_they_ended(["u"]) == UNSEEN
        spoilt[:] = ["/namespaces/"]
        with pytest.raises(UserError, match="API server"):
            cluster.pods(["u"])
        with pytest.raises(UserError, match="API server"):
            Pod(cluster, "team", "train-0", "u", "").tell("it hangs")


def test_no_pod_at_all_is_an_answer(tmp_path):
    with answering(tmp_path, lambda _path: (200, {"kind": LIST, "items": None})) as cluster:
        assert cluster.pods(["u"]) == []


@pytest.mark.parametrize("status", [200, 403, 500])
def test_secrets_in_a_body_are_masked_before_it_is_printed(status, tmp_path):
    secret = "hunter2-x7Kq9wLm3"
    body = {"kind": "Status", "message": f"proxy said: password={secret} Bearer {secret}\x1b[2J"}
    with (
        answering(tmp_path, lambda _path: (status, body)) as cluster,
        pytest.raises(UserError) as problem,
    ):
        cluster.pods(["u"])
    assert secret not in str(problem.value) and "\x1b" not in str(problem.value)
    assert "proxy said: password=" in str(problem.value)
