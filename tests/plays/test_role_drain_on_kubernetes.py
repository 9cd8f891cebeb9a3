"""The role drain with the real kubectl and a real API server."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import kubectl
import pytest
import yaml
from api_server import write_kubeconfig
from fakes.role_play import DEADLINE_S, PROJECT, answer_of, drain_tasks, environment
from kubernetes_cluster import AWAY, NEEDED, NODES, WORK, cluster, kubernetes, make_node, make_pod

__all__ = ["cluster", "kubernetes"]
pytestmark = NEEDED
OURS = "unhang r1: driver 580.95.05"


@pytest.fixture(scope="module")
def with_kubectl():
    """Variables under which Ansible finds kubectl."""
    return kubectl.ready(PROJECT / ".cache" / "kubectl")


@pytest.fixture
def role(with_kubectl, cluster, tmp_path):
    """role(step, *arguments, folder=, **variables) -> (code, drain_result, all output). folder: of
    a play beside another one."""

    def play(step, *arguments, folder=tmp_path, **variables):
        folder.mkdir(exist_ok=True)
        (folder / "play.yml").write_text(
            json.dumps(
                [{"hosts": "all", "gather_facts": False, "tasks": drain_tasks(folder, step)}]
            )
        )
        given = {
            "drain_adapter": "kubernetes",
            "drain_run": "r1",
            "drain_why": "driver 580.95.05",
            "drain_kubernetes_kubeconfig": str(cluster.kubeconfig(folder)),
        }
        given |= {
            "drain_poll_s": 1,
            "drain_wait_timeout_s": 3,
            "drain_scheduler_timeout_s": 5,
            "ansible_connection": "local",
            **variables,
        }
        (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"gpu001": given}}}))
        command = ["ansible-playbook", str(folder / "play.yml"), "-i", str(folder / "hosts.json")]
        done = answer_of([*command, *arguments], {**environment(folder), **with_kubectl})
        sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
        return done.returncode, json.loads((folder / "said.json").read_text()), done.stdout

    return play


def test_a_node_is_cordoned_emptied_and_uncordoned(role, cluster):
    cluster.add(
        make_node("gpu001"),
        make_pod("web", "gpu001"),
        make_pod("agent", "gpu001", "DaemonSet"),
        make_pod("web2", "gpu002"),
    )
    code, result, _said = role("drain")
    assert (code, result) == (
        0,
        {"drained": True, "by": "unhang", "reason": OURS, "jobs": [], "owned": True, "at": ""},
    )
    assert cluster.node("gpu001")["spec"]["unschedulable"] is True
    assert cluster.node("gpu001")["metadata"]["annotations"] == {"unhang-drain": OURS}
    writes = list(cluster.writes)
    assert role("drain")[0] == 0
    assert cluster.writes == writes, "a second run changes nothing"
    assert role("wait")[0] == 0
    assert cluster.pods() == ["agent", "web2"]
    code, result, _said = role("release")
    assert (code, result["drained"], result["owned"]) == (0, False, False)
    assert "annotations" not in cluster.node("gpu001")["metadata"]
    assert "unschedulable" not in cluster.node("gpu001")["spec"]


def test_pods_with_gpus_and_jobs_are_waited_for_and_never_evicted(role, cluster):
    cluster.add(
        make_node("gpu001"),
        make_pod("train", "gpu001", "ReplicaSet", gpus=8),
        make_pod("batch", "gpu001", "Job"),
        make_pod("web", "gpu001"),
    )
    assert [row["id"] for row in role("drain")[1]["jobs"]] == ["work/batch", "work/train"]
    code, result, output = role("wait")
    assert code != 0
    assert ": work/batch, work/train; no job was touched" in output
    assert cluster.pods() == ["batch", "train", "web"]
    finished = {"status": {"phase": "Succeeded"}}
    listed = itertools.chain(
        [None] * 2,
        [lambda: cluster.end("train")],
        [lambda: cluster.change(f"{WORK}/pods/batch/status", finished)],
    )
    cluster.before("GET", "/api/v1/pods", listed)
    code, result, _said = role("wait", drain_wait_timeout_s=200)
    assert (code, result["jobs"]) == (0, [])
    assert "web" not in cluster.pods()


def test_a_job_that_starts_while_a_disruption_budget_is_waited_for_is_not_evicted(role, cluster):
    cluster.add(make_node("gpu001"), make_pod("web", "gpu001"))
    cluster.allow_evictions("web", 0)

    def uncordon():
        cluster.change_node("gpu001", {"spec": {"unschedulable": None}})
        cluster.add(make_pod("batch", "gpu001", "Job", gpus=8))

    cluster.before("POST", "/eviction", [uncordon, lambda: cluster.allow_evictions("web", 1)])
    assert role("drain")[0] == 0
    code, _result, output = role("wait", drain_wait_timeout_s=30)
    assert cluster.pods() == ["batch"], "a job was evicted"
    assert code != 0
    assert "gpu001 is not cordoned and takes pods: somebody has ended the drain" in output


def test_a_preview_changes_nothing_and_says_what_would_be_done(role, cluster):
    cluster.add(make_node("gpu001"), make_pod("web", "gpu001"), make_pod("train", "gpu001", "Job"))
    code, result, output = role("drain", "--check")
    assert (code, result["drained"], [row["id"] for row in result["jobs"]]) == (
        0,
        False,
        ["work/train"],
    )
    assert f"gpu001 is to be cordoned as '{OURS}'" in output
    assert role("wait", "--check")[0] == 0
    assert role("release", "--check")[0] == 0
    assert cluster.writes == []
    assert cluster.pods() == ["train", "web"]


def test_of_two_runs_that_drain_at_once_one_has_the_node_and_the_other_names_it(
    role, cluster, tmp_path
):
    cluster.add(make_node("gpu001"))
    both = threading.Barrier(2)

    def meet():  # both have read the node, and neither has changed it
        both.wait(DEADLINE_S)

    cluster.before("PATCH", "/nodes/gpu001", [meet] * 2)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        plays = {
            run: pool.submit(role, "drain", folder=tmp_path / run, drain_run=run)
            for run in ("r1", "r2")
        }
    answers = {run: play.result() for run, play in plays.items()}
    assert [(code, result["drained"]) for code, result, _said in answers.values()] == [
        (0, True)
    ] * 2
    (winner,) = [run for run, (_code, result, _said) in answers.items() if result["owned"]]
    (loser,) = {"r1", "r2"} - {winner}
    mark = f"unhang {winner}: driver 580.95.05"
    assert cluster.writes == [("patch", "gpu001")]
    assert cluster.node("gpu001")["metadata"]["annotations"] == {"unhang-drain": mark}
    assert f"gpu001 was cordoned by unhang's run {winner} ({mark})" in answers[loser][2]
    role("release", drain_run=loser)
    assert cluster.writes == [("patch", "gpu001")]
    assert role("release", drain_run=winner)[1]["drained"] is False


def test_an_api_that_is_away_is_waited_for_and_named(role, cluster):
    cluster.add(make_node("gpu001"))
    cluster.before("*", "", [lambda: AWAY] * 2)
    assert role("drain", drain_scheduler_timeout_s=100)[1]["owned"] is True
    cluster.before("*", "", itertools.repeat(lambda: AWAY))
    code, result, output = role("drain", drain_scheduler_timeout_s=2)
    assert code != 0
    assert result["jobs"] is None
    assert "currently unable to handle the request" in output


@pytest.mark.parametrize("arrives", [False, True])
def test_an_api_that_is_away_as_the_node_is_cordoned_is_asked_what_came_of_it(
    role, cluster, arrives
):
    cluster.add(make_node("gpu001"))

    def lose():  # the change arrives, its answer does not
        if arrives:
            mark = {"metadata": {"annotations": {"unhang-drain": OURS}}}
            cluster.change_node("gpu001", {**mark, "spec": {"unschedulable": True}})
        return AWAY

    cluster.before("PATCH", "/nodes/gpu001", [lose])
    code, result, _said = role("drain", drain_scheduler_timeout_s=100)
    assert (code, result["drained"], result["owned"]) == (0, True, True)
    assert cluster.writes == ([] if arrives else [("patch", "gpu001")])
    cluster.before("PATCH", "/nodes/gpu001", itertools.repeat(lambda: AWAY))
    code, result, output = role("release", drain_scheduler_timeout_s=2)
    assert code != 0
    assert (result["drained"], result["owned"]) == (True, True)
    assert "currently unable to handle the request" in output


def test_a_node_that_is_not_ready_stays_cordoned(role, cluster):
    cluster.add(make_node("gpu001"))
    assert role("drain")[0] == 0
    away = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    cluster.change(f"{NODES}/gpu001/status", away)
    code, result, output = role("release", drain_scheduler_timeout_s=2)
    assert code != 0
    assert (result["drained"], result["owned"]) == (True, True)
    assert "it stays cordoned until then" in output


def test_a_node_that_the_api_does_not_know_is_named(role, cluster):
    cluster.add(make_node("gpu002"))
    code, _result, output = role("drain")
    assert code != 0
    assert "Kubernetes has no node with this name" in output


def test_a_node_of_another_machine_is_refused_and_nothing_is_written(role, cluster):
    cluster.add(make_node("gpu002"))
    machine = {"status": {"nodeInfo": {"bootID": "aaaa"}}}
    cluster.change(f"{NODES}/gpu002/status", machine)
    code, _result, output = role("drain", drain_node="gpu002")
    assert code == 2
    assert "drain_node names another machine" in output
    assert cluster.writes == []
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    cluster.change(f"{NODES}/gpu002/status", {"status": {"nodeInfo": {"bootID": boot}}})
    assert role("drain", drain_node="gpu002")[0] == 0


def test_the_pods_of_all_nodes_are_listed_once_for_a_plan(with_kubectl, cluster, tmp_path):
    cluster.add(
        make_node("gpu001"),
        make_pod("train", "gpu001", "Job", gpus=8),
        make_pod("agent", "gpu001", "DaemonSet"),
    )
    hosts = {
        name: {"ansible_connection": "local", "drain_node": node}
        for name, node in (("n1", "gpu001"), ("n2", "gpu009"))
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    given = {
        "scheduler_hosts": {"kubernetes": list(hosts)},
        "scheduler_answers": str(tmp_path),
        "drain_kubernetes_kubeconfig": str(cluster.kubeconfig(tmp_path)),
    }
    command = ["ansible-playbook", "playbooks/scheduler_jobs.yml"]
    command += ["-i", str(tmp_path / "hosts.json"), "-e", json.dumps(given)]
    done = answer_of(command, {**environment(tmp_path), **with_kubectl})
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads((tmp_path / "kubernetes.json").read_text())
    assert [job["id"] for job in answer["jobs"]["gpu001"]] == ["work/train"]
    assert answer["nodes"] == ["gpu001"]
    assert answer["names"] == {"n1": "gpu001", "n2": "gpu009"}


def rights_of_the_readme():
    """The ClusterRole that the role's README shows."""
    blocks = (PROJECT / "roles" / "drain" / "README.md").read_text().split("```yaml\n")[1:]
    (shown,) = [text for block in blocks if "ClusterRole" in (text := block.partition("```")[0])]
    return yaml.safe_load(shown)


def with_account(server, folder, name, without=()):
    """A kubeconfig of an account with these rights, directly at the server. without: (resource,
    verb) that it lacks."""
    role = rights_of_the_readme()
    role["metadata"]["name"] = name
    for rule in role["rules"]:
        rule["verbs"] = [
            verb for verb in rule["verbs"] if (rule["resources"][0], verb) != tuple(without)
        ]
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
    group = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": name, "namespace": "work"}
    bound = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [account],
    }
    server.make(f"/apis/{group}/v1/clusterroles", role)
    server.make(f"/apis/{group}/v1/clusterrolebindings", bound)
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    server.make(f"{WORK}/serviceaccounts", made)
    token = server.token("work", name)
    path = f"{WORK}/pods" if without != ("pods", "list") else NODES
    until = time.monotonic() + DEADLINE_S
    while server.ask("GET", path, token=token)[0] == 403:  # the binding is not in force yet
        assert time.monotonic() < until
        time.sleep(0.1)
    at = {"server": server.address, "certificate-authority": str(server.authority)}
    return str(write_kubeconfig(folder / "account", at, {"token": token}))


def test_the_rights_of_the_readme_are_enough(role, kubernetes, cluster, tmp_path):
    account = {"drain_kubernetes_kubeconfig": with_account(kubernetes, tmp_path, "operator")}
    cluster.add(
        make_node("gpu001"), make_pod("web", "gpu001"), make_pod("a", "gpu001", "DaemonSet")
    )
    steps = [role(step, **account)[0] for step in ("states", "drain", "wait", "release")]
    assert steps == [0] * 4
    assert cluster.pods() == ["a"]


@pytest.mark.parametrize(
    ("without", "steps"),
    [
        (("nodes", "get"), ["drain"]),
        (("nodes", "list"), ["states"]),
        (("nodes", "patch"), ["drain"]),
        (("pods", "list"), ["drain"]),
        (("pods", "get"), ["drain", "wait"]),
        (("pods/eviction", "create"), ["drain", "wait"]),
        (("daemonsets", "get"), ["drain", "wait"]),
    ],
)
def test_an_account_without_one_of_them_is_refused_at_once_and_the_right_is_named(
    role, kubernetes, cluster, tmp_path, without, steps
):
    name = "-".join(["no", *without]).replace("/", "-")
    account = {"drain_kubernetes_kubeconfig": with_account(kubernetes, tmp_path, name, without)}
    cluster.add(
        make_node("gpu001"), make_pod("web", "gpu001"), make_pod("a", "gpu001", "DaemonSet")
    )
    before = cluster.node("gpu001")
    for step in steps:
        code, _result, output = role(
            step, **account, drain_scheduler_timeout_s=200, drain_wait_timeout_s=200
        )
        assert (code == 0) == (step != steps[-1])
    resource, verb = without
    assert f'cannot {verb} resource "{resource}" in API group' in output.replace("\\", "")
    assert "FAILED - RETRYING" not in output
    if len(steps) == 1:
        assert cluster.node("gpu001") == before
    assert ("web" in cluster.pods()) is (without != ("pods", "get"))


def test_kubectl_writes_the_inventory_of_the_page(with_kubectl, cluster, tmp_path):
    page = (PROJECT / "docs" / "operations.md").read_text()
    (command,) = re.findall(r"^\$ (kubectl get nodes -l .*?) > \S+$", page, re.M | re.S)
    node = make_node("gpu001", **{"nvidia.com/gpu.present": "true"})
    addresses = {"Hostname": "gpu001", "InternalIP": "10.0.0.7"}
    node["status"]["addresses"] = [
        {"type": kind, "address": address} for kind, address in addresses.items()
    ]
    cluster.add(node, make_node("login"))
    kubeconfig = {"KUBECONFIG": str(cluster.kubeconfig(tmp_path))}
    done = subprocess.run(
        ["sh", "-c", command],
        env={**environment(tmp_path), **with_kubectl, **kubeconfig},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        stdin=subprocess.DEVNULL,
    )
    assert (done.stdout, done.returncode) == ("gpu001 ansible_host=10.0.0.7\n", 0), done.stderr
