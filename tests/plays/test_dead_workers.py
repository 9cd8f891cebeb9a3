"""A worker of Ansible that is killed from outside, as the kernel does when memory runs out: only
the node that it read fails."""

from __future__ import annotations

import json

import pytest
from local_fleet import CLEAN, envelope, run, unhang_argv

pytestmark = pytest.mark.timeout(600)
# Ends the first ansible-playbook among the parents of this node's Python: the worker that reads the
# node.
KILL_THE_WORKER = """
process=$$
while [ "$process" -gt 1 ]; do
    process=$(awk '{print $4}' "/proc/$process/stat")
    tr '\\0' ' ' <"/proc/$process/cmdline" | grep -q ansible-playbook && kill -9 "$process" && exit 1
done
"""
WHY = (
    "the process of Ansible that read this node was killed (SIGKILL), as the kernel does for want"
    " of memory"
)


def audit(fleet, *arguments):
    """A finished `unhang audit` command."""
    command = unhang_argv("audit", "--out", fleet.runs, "-i", fleet.inventory, *arguments)
    (fleet.folder / "temp").mkdir(exist_ok=True)
    return run(
        command,
        {**CLEAN, "ANSIBLE_HOME": str(fleet.folder / "home"), "TMPDIR": str(fleet.folder / "temp")},
        fleet.folder,
    )


@pytest.mark.parametrize(
    ("killing", "forks"),
    [("b", 2), ("bd", 1), ("g", 3), ("abcdefg", 2)],
    ids=["early", "two of them", "last", "all"],
)
def test_every_other_node_is_read_and_the_audit_ends_as_any_other(fleet, killing, forks):
    for name in "abcdefg":
        if name in killing:
            fleet.interpreter(name, KILL_THE_WORKER)
        else:
            fleet.answering(name, envelope())
    fleet.groups = {"training": list("abcdefg")}
    done = audit(fleet, "--forks", forks, "--limit", "training", "--format", "json")
    nodes = fleet.nodes()
    assert {name: (node["status"], node["message"]) for name, node in nodes.items()} == {
        name: ("failed", WHY) if name in killing else ("ok", None) for name in "abcdefg"
    }, done.stderr
    assert all(node["groups"] == ["training"] for node in nodes.values())
    document = fleet.run_document()
    assert (sorted(document["hosts"]), document["limit"]) == (list("abcdefg"), "training")
    assert done.stderr.count("a process of Ansible was killed while it read") in range(
        1, len(killing) + 1
    )
    assert "Traceback" not in done.stderr
    assert list((fleet.folder / "temp").iterdir()) == []
    assert document["finished"]
    assert json.loads(done.stdout)["nodes"].get("ok", 0) == 7 - len(killing)
    assert done.returncode == (2 if killing == "abcdefg" else 1)


def test_plain_ansible_playbook_ends_and_says_how_to_go_on(fleet):
    fleet.answering("a", envelope())
    fleet.interpreter("b", KILL_THE_WORKER)
    for name in "cde":
        fleet.answering(name, envelope())
    done = fleet.play("--forks", "1")
    assert done.returncode
    assert "a process of Ansible was killed while it read b" in done.stderr
    assert "the audit ended early" in done.stderr
    assert "judge the nodes that were read with: " in done.stderr
    messages = {host: (node["status"], node["message"]) for host, node in fleet.nodes().items()}
    assert messages["a"] == ("ok", None)
    assert messages["b"] == ("failed", WHY)
    assert messages["e"] == ("failed", "the play ended before this node was asked")
    assert fleet.run_document()["finished"] is None
