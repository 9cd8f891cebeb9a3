"""Nodes that print without end: each loses only its own result, and no worker of the controller uses more memory than one answer may need."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from local_fleet import PROJECT, envelope, run

from unhang.base import project

pytestmark = [pytest.mark.xdist_group("test_endless_answers"), pytest.mark.timeout(600)]

MOST_MIB = 400  # of any process of the audit
# Without limits an answer needs twenty times its size: then one process ends without memory, and the test machine does not.
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


@pytest.fixture(scope="module")
def played(shared_fleet):
    """One audit of all of them, one node at a time, between two good nodes."""
    fleet = shared_fleet
    fleet.answering("a-good", envelope())
    for name, command in PRINTS.items():
        fleet.interpreter(name, f'[ "$1" = -c ] && exec {sys.executable} "$@"\ncat >/dev/null\n{command}\n')
    fleet.answering("z-good", envelope())
    project.link_pynvml(PROJECT)
    play = [project.ansible_program("ansible-playbook"), PROJECT / "playbooks" / "audit.yml", "-i", fleet.inventory, "--forks", "1"]
    done = run([sys.executable, "-c", MEASURED, ADDRESS_SPACE_BYTES, *play], fleet.environment(), fleet.folder)
    return fleet, json.loads(done.stdout)


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
    assert node["message"].startswith("expected an answer of at most 4194304 characters, found ")
    if name in ("endless", "complaining"):
        assert node["message"].endswith("one that does not end; reading was given up")


def test_no_process_of_the_controller_takes_much_memory(played):
    assert played[1]["largest_kib"] / 1024 < MOST_MIB


def test_no_node_goes_on_printing(played):
    folder = str(played[0].folder).encode()
    assert not [line for path in Path("/proc").glob("[0-9]*/cmdline") if folder in (line := _content(path))]


def _content(path):
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""
