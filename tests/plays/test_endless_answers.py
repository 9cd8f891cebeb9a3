"""Nodes that print without end: each loses only its own result, and no worker of the controller
uses more memory than one answer may need."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from local_fleet import PROJECT, envelope, read, run

from unhang.core.ansible import ansible_env, packed_pynvml
from unhang.core.commands.counted_nodes import CountedNodes

pytestmark = [pytest.mark.xdist_group("test_endless_answers"), pytest.mark.timeout(600)]

MOST_MIB = 400  # of any process of the audit
# Without limits an answer needs twenty times its size: then one process ends without memory, and
# the test machine does not.
ADDRESS_SPACE_BYTES = 3 * 1024**3
# Prints the memory (KiB) of the largest process below this one.
MEASURED = """
import json, resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
done = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
print(json.dumps({"code": done.returncode, "stderr": done.stderr, "largest_kib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}))
"""
PRINTS = {
    "lines": "yes '{}' | head -c 48000000",
    "large": "head -c 300000000 /dev/zero | tr '\\0' x",
    "endless": "exec cat /dev/zero",
    "complaining": "exec cat /dev/zero >&2",
}


def printing_between(fleet, good):
    """The nodes that print without end, between two good ones with this answer."""
    fleet.answering("a-good", good)
    for name, command in PRINTS.items():
        fleet.interpreter(
            name, f'[ "$1" = -c ] && exec {sys.executable} "$@"\ncat >/dev/null\n{command}\n'
        )
    fleet.answering("z-good", good)
    return fleet


def measured(fleet, playbook, *arguments):
    """{code, stderr, largest_kib} of a playbook that asks one node at a time."""
    packed_pynvml.link_pynvml(PROJECT)
    play = [
        ansible_env.ansible_program("ansible-playbook"),
        PROJECT / "playbooks" / playbook,
        "-i",
        fleet.inventory,
        "--forks",
        "1",
        *arguments,
    ]
    return json.loads(
        run(
            [sys.executable, "-c", MEASURED, ADDRESS_SPACE_BYTES, *play],
            fleet.environment(),
            fleet.folder,
        ).stdout
    )


@pytest.fixture(scope="module")
def played(shared_fleet):
    """One audit of all of them."""
    return printing_between(shared_fleet, envelope()), measured(shared_fleet, "audit.yml")


@pytest.fixture
def inspected(fleet, tmp_path):
    """({host: what was kept of its answer}, the play, its bar's lines) of one look at a job."""
    (tmp_path / "answers" / "nodes").mkdir(parents=True)
    nodes = CountedNodes(tmp_path / "answers")
    printing_between(fleet, json.dumps({"changed": False, "evidence": "{}"}))
    done = measured(
        fleet,
        "inspect.yml",
        "--extra-vars",
        json.dumps({"inspect_folder": str(tmp_path / "answers"), "inspect_options": {}}),
    )
    return (
        {
            answer["host"]: answer
            for answer in map(read, (tmp_path / "answers" / "nodes").glob("*.json"))
        },
        done,
        nodes.lines(100),
    )


def test_the_other_nodes_are_read(played):
    fleet, done = played
    nodes = fleet.nodes()
    assert done["code"] == 0, done["stderr"]
    assert [nodes["a-good"]["status"], nodes["z-good"]["status"]] == ["ok", "ok"]
    assert set(nodes) == {"a-good", "z-good", *PRINTS}
    assert fleet.run_document()["finished"]


@pytest.mark.parametrize("name", PRINTS)
def test_each_is_recorded_for_what_it_is(played, name):
    node = played[0].nodes()[name]
    assert node["status"] == "invalid", node["message"]
    assert "4194304" in node["message"]
    if name in ("endless", "complaining"):
        assert node["message"].endswith("characters; reading was given up")


def test_no_process_of_the_controller_takes_much_memory(played):
    assert played[1]["largest_kib"] / 1024 < MOST_MIB


def test_no_node_goes_on_printing(played):
    folder = str(played[0].folder).encode()
    assert not [
        line for path in Path("/proc").glob("[0-9]*/cmdline") if folder in (line := _content(path))
    ]


def test_a_look_at_a_job_reads_the_other_nodes_and_takes_little_memory(inspected):
    answers, done, lines = inspected
    assert done["code"] == 0, done["stderr"]
    assert set(answers) == {"a-good", "z-good", *PRINTS}
    assert {host: answers[host]["evidence"] for host in ("a-good", "z-good")} == {
        "a-good": "{}",
        "z-good": "{}",
    }
    for name in PRINTS:
        assert answers[name] == {
            "host": name,
            "status": "failed",
            "evidence": None,
            "problem": "the answer is longer than 4194304 characters",
        }
    assert done["largest_kib"] / 1024 < MOST_MIB
    assert [line.partition(" nodes ")[0] for line in lines] == ["6 of 6"]
    assert f"{len(PRINTS)} failed, 0 unreachable" in lines[0]


def _content(path):
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""
