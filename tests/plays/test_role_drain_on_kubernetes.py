"""The role drain with the real kubectl and a stateful stand-in for the API server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import kubectl
import pytest
from fakes.kubernetes_api import Cluster, make_node, make_pod, serving
from fakes.role_play import DEADLINE_S, PROJECT, environment

OURS = "unhang r1: driver 580.95.05"


@pytest.fixture(scope="module")
def with_kubectl():
    """Variables under which Ansible finds kubectl."""
    return kubectl.ready(PROJECT / ".cache" / "kubectl")


@pytest.fixture
def role(with_kubectl, tmp_path):
    """role(cluster, step, *arguments, **variables) -> (code, drain_result, all output)."""

    def play(cluster, step, *arguments, **variables):
        shown = {
            "name": "Tell",
            "ansible.builtin.copy": {
                "content": "{{ drain_result | to_json }}",
                "dest": str(tmp_path / "said.json"),
                "mode": "0600",
            },
        }
        task = {"name": step, "ansible.builtin.include_role": {"name": "drain", "tasks_from": step}}
        block = [
            {
                "name": "Step",
                "block": [task],
                "always": [{**shown, "check_mode": False, "changed_when": False}],
            }
        ]
        (tmp_path / "play.yml").write_text(
            json.dumps([{"name": "Drain", "hosts": "all", "gather_facts": False, "tasks": block}])
        )
        with serving(cluster, tmp_path) as kubeconfig:
            given = {
                "drain_adapter": "kubernetes",
                "drain_run": "r1",
                "drain_why": "driver 580.95.05",
                "drain_kubernetes_kubeconfig": str(kubeconfig),
            }
            given |= {
                "drain_poll_s": 1,
                "drain_wait_timeout_s": 3,
                "drain_scheduler_timeout_s": 5,
                "ansible_connection": "local",
                **variables,
            }
            (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"gpu001": given}}}))
            command = [
                "ansible-playbook",
                str(tmp_path / "play.yml"),
                "-i",
                str(tmp_path / "hosts.json"),
                *arguments,
            ]
            options = {
                "capture_output": True,
                "text": True,
                "timeout": DEADLINE_S,
                "stdin": subprocess.DEVNULL,
            }
            done = subprocess.run(
                command, cwd=PROJECT, env={**environment(tmp_path), **with_kubectl}, **options
            )
        sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
        return done.returncode, json.loads((tmp_path / "said.json").read_text()), done.stdout

    return play


def test_a_node_is_cordoned_emptied_and_uncordoned(role):
    cluster = Cluster(
        make_node("gpu001"),
        make_pod("web", "gpu001"),
        make_pod("agent", "gpu001", "DaemonSet"),
        make_pod("web2", "gpu002"),
    )
    code, result, _said = role(cluster, "drain")
    assert (code, result) == (
        0,
        {"drained": True, "by": "unhang", "reason": OURS, "jobs": [], "owned": True},
    )
    assert cluster.nodes["gpu001"]["spec"]["unschedulable"] is True
    assert cluster.nodes["gpu001"]["metadata"]["annotations"] == {"unhang-drain": OURS}
    writes = list(cluster.writes)
    assert role(cluster, "drain")[0] == 0
    assert cluster.writes == writes, "a second run changes nothing"
    assert role(cluster, "wait")[0] == 0
    assert sorted(cluster.pods) == ["agent", "web2"]
    code, result, _said = role(cluster, "release")
    assert (code, result["drained"], result["owned"]) == (0, False, False)
    assert cluster.nodes["gpu001"]["metadata"]["annotations"] == {}
    assert "unschedulable" not in cluster.nodes["gpu001"]["spec"]


def test_pods_with_gpus_and_jobs_are_waited_for_and_never_evicted(role):
    cluster = Cluster(
        make_node("gpu001"),
        make_pod("train", "gpu001", "ReplicaSet", gpus=8),
        make_pod("batch", "gpu001", "Job"),
        make_pod("web", "gpu001"),
    )
    assert [row["id"] for row in role(cluster, "drain")[1]["jobs"]] == ["work/train", "work/batch"]
    code, result, output = role(cluster, "wait")
    assert code != 0
    assert "found work/train, work/batch; no job was touched" in output
    assert sorted(cluster.pods) == ["batch", "train", "web"]
    ends = threading.Timer(
        6,
        lambda: (
            cluster.pods.pop("train"),
            cluster.pods["batch"]["status"].update(phase="Succeeded"),
        ),
    )
    ends.start()
    code, result, _said = role(cluster, "wait", drain_wait_timeout_s=200)
    assert (code, result["jobs"]) == (0, [])
    assert "web" not in cluster.pods


def test_a_disruption_budget_is_respected_and_waited_for(role):
    cluster = Cluster(make_node("gpu001"), make_pod("web", "gpu001"))
    cluster.budget = 0
    assert role(cluster, "drain")[0] == 0
    code, _result, output = role(cluster, "wait")
    assert code != 0
    assert "would violate the pod's disruption budget" in output
    assert "web" in cluster.pods
    threading.Timer(6, lambda: setattr(cluster, "budget", 1)).start()
    assert role(cluster, "wait", drain_wait_timeout_s=200)[0] == 0
    assert cluster.pods == {}


class UncordonedMeanwhile(Cluster):
    """The first eviction is refused by a disruption budget; then somebody uncordons the node, and a
    job starts on it."""

    budget_s_refusals = 1

    def evict(self, name):
        if self.budget_s_refusals:
            self.budget_s_refusals -= 1
            self.nodes["gpu001"]["spec"].pop("unschedulable")
            self.pods["batch"] = make_pod("batch", "gpu001", "Job", gpus=8)
            self.budget = 0
            refused = super().evict(name)
            self.budget = None
            return refused
        return super().evict(name)


def test_a_job_that_starts_while_a_disruption_budget_is_waited_for_is_not_evicted(role):
    cluster = UncordonedMeanwhile(make_node("gpu001"), make_pod("web", "gpu001"))
    assert role(cluster, "drain")[0] == 0
    code, _result, output = role(cluster, "wait", drain_wait_timeout_s=10)
    assert "batch" in cluster.pods, "a job was evicted"
    assert code != 0
    assert (
        "expected gpu001 cordoned, found that it takes pods: somebody has ended the drain" in output
    )


def test_what_somebody_else_cordoned_is_left_as_it_is(role):
    cluster = Cluster(make_node("gpu001"))
    cluster.nodes["gpu001"]["spec"]["unschedulable"] = True
    code, result, output = role(cluster, "drain")
    assert (code, result["drained"], result["owned"]) == (0, True, False)
    assert "gpu001 was cordoned by somebody else: it is left so" in output
    code, result, _said = role(cluster, "release")
    assert (code, result["drained"], result["owned"]) == (0, True, False)
    assert cluster.writes == []


def test_a_preview_changes_nothing_and_says_what_would_be_done(role):
    cluster = Cluster(
        make_node("gpu001"), make_pod("web", "gpu001"), make_pod("train", "gpu001", "Job")
    )
    code, result, output = role(cluster, "drain", "--check")
    assert (code, result["drained"], [row["id"] for row in result["jobs"]]) == (
        0,
        False,
        ["work/train"],
    )
    assert f"gpu001 is to be cordoned as '{OURS}'" in output
    assert role(cluster, "wait", "--check")[0] == 0
    assert role(cluster, "release", "--check")[0] == 0
    assert cluster.writes == []
    assert sorted(cluster.pods) == ["train", "web"]


def test_a_node_that_somebody_changed_meanwhile_is_read_again(role):
    cluster = Cluster(make_node("gpu001"))
    cluster.conflicts = 1
    code, result, _said = role(cluster, "drain")
    assert (code, result["owned"]) == (0, True)


def test_an_api_that_is_away_is_waited_for_and_named(role):
    cluster = Cluster(make_node("gpu001"))
    cluster.away = 2
    assert role(cluster, "drain", drain_scheduler_timeout_s=100)[1]["owned"] is True
    cluster.away = 10_000
    code, result, output = role(cluster, "drain", drain_scheduler_timeout_s=2)
    assert code != 0
    assert result["jobs"] is None
    assert "currently unable to handle the request" in output


def test_a_node_that_is_not_ready_stays_cordoned(role):
    cluster = Cluster(make_node("gpu001"))
    assert role(cluster, "drain")[0] == 0
    cluster.nodes["gpu001"]["status"]["conditions"][0]["status"] = "Unknown"
    code, result, output = role(cluster, "release", drain_scheduler_timeout_s=2)
    assert code != 0
    assert (result["drained"], result["owned"]) == (True, True)
    assert "it stays cordoned until then" in output


def test_a_node_that_the_api_does_not_know_is_named(role):
    code, _result, output = role(Cluster(make_node("gpu002")), "drain")
    assert code != 0
    assert "expected a node of Kubernetes with this name, found none" in output


def test_a_node_of_another_machine_is_refused_and_nothing_is_written(role):
    cluster = Cluster(make_node("gpu002"))
    cluster.nodes["gpu002"]["status"]["nodeInfo"] = {"bootID": "aaaa"}
    code, _result, output = role(cluster, "drain", drain_node="gpu002")
    assert code == 2
    assert "drain_node names another machine" in output
    assert cluster.writes == []
    cluster.nodes["gpu002"]["status"]["nodeInfo"] = {
        "bootID": Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    }
    assert role(cluster, "drain", drain_node="gpu002")[0] == 0


def test_the_pods_of_all_nodes_are_listed_once_for_a_plan(with_kubectl, tmp_path):
    cluster = Cluster(
        make_node("gpu001"),
        make_pod("train", "gpu001", "Job", gpus=8),
        make_pod("agent", "gpu001", "DaemonSet"),
    )
    hosts = {
        name: {"ansible_connection": "local", "drain_node": node}
        for name, node in (("n1", "gpu001"), ("n2", "gpu009"))
    }
    with serving(cluster, tmp_path) as kubeconfig:
        (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
        given = {
            "scheduler_hosts": {"kubernetes": list(hosts)},
            "scheduler_answers": str(tmp_path),
            "drain_kubernetes_kubeconfig": str(kubeconfig),
        }
        command = ["ansible-playbook", "playbooks/scheduler_jobs.yml"]
        command += ["-i", str(tmp_path / "hosts.json"), "-e", json.dumps(given)]
        done = subprocess.run(
            command,
            cwd=PROJECT,
            env={**environment(tmp_path), **with_kubectl},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads((tmp_path / "kubernetes.json").read_text())
    assert [job["id"] for job in answer["jobs"]["gpu001"]] == ["work/train"]
    assert answer["nodes"] == ["gpu001"]
    assert answer["names"] == {"n1": "gpu001", "n2": "gpu009"}
