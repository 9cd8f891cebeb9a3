"""Where the API server of Kubernetes is, what its labels mean, and that one that does not answer is
said. tests/nodes/test_watch_in_kubernetes.py asks a real one."""

from __future__ import annotations

import argparse
import socket

import pytest

from unhang.core.errors import UserError
from unhang.jobs.commands import watch
from unhang.jobs.watch.of_pods import Cluster, cluster_of

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
    with pytest.raises(UserError, match=r"--pods: expected a pod with a service account"):
        cluster_of(given, account)


def test_the_option_needs_all():
    parser = argparse.ArgumentParser()
    watch.add_arguments(parser)
    with pytest.raises(UserError, match="--pods: expected --all beside it"):
        watch.run(parser.parse_args(["--pods", "all", "--pid", "1"]))


def test_a_server_that_does_not_answer_is_said(account):
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    (account / "ca.crt").unlink()
    for where in (account, account / "absent"):
        with pytest.raises(UserError, match="the API server did not answer: "):
            Cluster("127.0.0.1", port, "node-a", where).pods(["u"])


class Answers(Cluster):
    """A server with these labels of a pod and of its namespace."""

    def ask(self, path, many="", body=None):
        of_pod, of_namespace = self.account
        metadata = {"namespace": "team", "name": "train-0", "uid": "u", "labels": of_pod}
        if many:
            assert path.endswith("fieldSelector=spec.nodeName%3Dnode-a")
            return {"items": [{"metadata": metadata}, {"metadata": {**metadata, "uid": "other"}}]}
        assert path == "/api/v1/namespaces/team"
        return {"metadata": {"name": "team", "labels": of_namespace}}


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
def test_a_pod_s_own_label_counts_before_its_namespace_s(of_pod, of_namespace, wants):
    (pod,) = Answers("h", 1, "node-a", (of_pod, of_namespace)).pods(["u", "elsewhere"])
    assert (pod.namespace, pod.name, pod.wants) == ("team", "train-0", wants)
