"""Rules about Slurm decide on a node whose slurm.conf lies on NFS as on one that has it on its
disk; a server that is gone leaves them unknown."""

from __future__ import annotations

import copy
import threading

import pytest
from changed_nodes import catalogue, view
from gallery import read_gallery
from recorded_roots import copied, read, write

from unhang.core.run.documents import to_fragment
from unhang.judge.rules.node_rules import NodeView, judge_rule, node_world
from unhang_node.base.root import Root

HEALTHY = next(machine.document for machine in read_gallery() if machine.name == "dgx_a100")
CONF = """TaskPlugin=task/cgroup,task/affinity
ProctrackType=proctrack/cgroup
PrologFlags=Contain
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
NodeName=n[1-4] Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=1000000 Gres=gpu:a100:8
"""
MOUNTS = "9 1 0:1 / / rw - ext4 x rw\n8 9 0:2 / /shared rw - nfs4 nas:/shared rw\n"


@pytest.fixture
def on_disk(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, "/proc/sys/kernel/hostname", "n2\n")
    write(folder, "/usr/sbin/slurmd", "")
    for name in ("task_cgroup", "task_affinity", "proctrack_cgroup", "cgroup_v2"):
        write(folder, f"/usr/lib64/slurm/{name}.so", "")
    write(folder, "/etc/slurm/slurm.conf", CONF)
    return folder


@pytest.fixture
def on_nfs(on_disk):
    (on_disk / "etc/slurm/slurm.conf").rename(on_disk / "slurm.conf")
    (on_disk / "etc/slurm").rmdir()
    (on_disk / "etc/slurm").symlink_to("/shared/slurm")
    write(on_disk, "/proc/self/mountinfo", MOUNTS)
    write(on_disk, "/shared/slurm/slurm.conf", CONF)
    return on_disk


class GoneServer(Root):
    """A root whose folder /shared does not answer until `back` is set."""

    back = threading.Event()

    def candidates(self, path):
        if path.startswith("/shared"):
            self.back.wait(60)
        return super().candidates(path)


def verdicts_of_slurm_rules(root, **options):
    """{rule: verdicts} of a healthy node whose section about Slurm was read from a root."""
    node, rows = read(root, ("node",), **options)["node"]
    sections = copy.deepcopy(HEALTHY["sections"])
    sections["node"]["slurm"] = node["slurm"]
    sections["node"]["probe"]["unread"] += [
        row for field, row in rows.items() if field.startswith("slurm")
    ]
    world = node_world(
        NodeView("n2", ("training",), {}, "ok", "", "", to_fragment(sections)), view()
    )
    rules = [
        rule
        for rule in catalogue().rules
        if rule.scope == "node" and "node.slurm.config" in str(rule.row)
    ]
    return {rule.id: {one.verdict for one in judge_rule(rule, world)} for rule in rules}


def test_rules_decide_on_nfs_what_they_decide_on_a_disk(on_nfs):
    from_nfs = verdicts_of_slurm_rules(Root([str(on_nfs)]))
    (on_nfs / "etc/slurm").unlink()
    write(on_nfs, "/etc/slurm/slurm.conf", CONF)
    assert from_nfs == verdicts_of_slurm_rules(Root([str(on_nfs)]))
    assert [rule for rule, verdicts in from_nfs.items() if "unknown" in verdicts] == []
    assert [rule for rule, verdicts in from_nfs.items() if "pass" in verdicts] != []


def test_a_server_that_does_not_answer_leaves_only_rules_about_slurm_unknown(on_nfs):
    found = verdicts_of_slurm_rules(GoneServer([str(on_nfs)]), silence_s=0.5)
    GoneServer.back.set()
    unknown = [rule for rule, verdicts in found.items() if "unknown" in verdicts]
    assert 10 < len(unknown) < 30
    assert [rule for rule, verdicts in found.items() if "fail" in verdicts] == []
