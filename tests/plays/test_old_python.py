"""Nodes whose Python is too old for the controller's ansible-core: this becomes a finding, and the
one-file collector reads them anyway."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from local_fleet import PROJECT, read

OLD = "3.7"  # too old for every ansible-core that this project supports
REFUSAL = (
    '{"failed": true, "msg": "ansible-core requires a minimum of Python version 3.8. Current'
    ' version: 3.7.3"}'
)


def old_python(folder, version, answer, errors="", code=1):
    """A shell script that acts as a Python of that version: it reports its version, refuses the
    module, and runs the collector's starter."""
    return f"""
if [ "$1" = -c ]; then echo "unhang-python {version}"; exit 0; fi
if [ "$1" = -I ]; then export TMPDIR='{folder}/node-tmp'; exec {sys.executable} "$@"; fi
cat >/dev/null
printf '%s\\n' '{answer}'
printf '%s\\n' '{errors}' >&2
exit {code}
"""


REAL = ("3.6", "3.7", "3.8", "3.9")
TOO_OLD = "2.7"  # for the collector as well


@pytest.fixture(scope="module")
def played(shared_fleet):
    """(fleet, nodes) of one audit of nodes whose Python is too old, each in its own way."""
    fleet = shared_fleet
    (fleet.folder / "node-tmp").mkdir()
    old = old_python(fleet.folder, OLD, REFUSAL)
    fleet.interpreter("old", old)
    fleet.interpreter("judged", old)
    fleet.hosts["judged"]["unhang_policy"] = {"kernel": {"min": "99.0"}}
    fleet.interpreter("asked", old)
    fleet.hosts["asked"]["unhang_gather_subset"] = ["!all", "network"]
    fleet.interpreter(
        "older",
        old_python(
            fleet.folder,
            TOO_OLD,
            "",
            errors="SyntaxError: future feature annotations is not defined",
        ),
    )
    fleet.interpreter(
        "full", old.replace(f'exec {sys.executable} "$@"', "echo 'no room on device' >&2; exit 1")
    )
    for version in REAL:
        # the stand-ins cover this; the real Python is an additional test where a developer has it
        if found := interpreter(version):
            fleet.host(version, ansible_python_interpreter=found)
    fleet.play(
        environment={"UNHANG_JUDGE": "1", "PYTHONPATH": f"{PROJECT}/tools:{PROJECT}/module_utils"}
    )
    return fleet, fleet.nodes()


def test_an_old_node_is_read_by_the_one_file_collector_and_marked(played):
    node = played[1]["old"]
    assert node["status"] == "python_too_old", node["message"]
    assert f"Python {OLD} at" in node["message"]
    assert node["message"].endswith("read with the one-file collector")
    assert node["facts"]["collector"]["collected_via"] == "file"
    assert node["facts"]["sections"]["node"]["probe"]["status"] == "ok"


def test_an_old_node_is_judged_like_any_other_and_its_python_is_a_finding(played):
    findings = read(played[0].runs / "latest" / "findings.json")["findings"]
    found = {
        finding["rule"]
        for finding in findings
        if finding["verdict"] == "fail"
        and "judged" in (finding["host"], *(finding.get("hosts") or ()))
    }
    assert {"node-python-too-old", "policy-kernel-min"} <= found


def test_nothing_of_the_collector_stays_on_the_node(played):
    assert list((played[0].folder / "node-tmp").iterdir()) == []


def test_the_inventorys_options_reach_the_collector_too(played):
    assert set(played[1]["asked"]["facts"]["sections"]) == {"node", "kernel", "network"}


def test_a_node_too_old_for_the_collector_as_well_says_so(played):
    node = played[1]["older"]
    assert node["status"] == "python_too_old"
    assert f"Python {TOO_OLD} at" in node["message"]
    assert "too old for the one-file collector as well" in node["message"]
    assert node["facts"] is None


def test_a_collector_that_fails_leaves_the_finding_with_its_words(played):
    node = played[1]["full"]
    assert node["status"] == "python_too_old"
    assert "no room on device" in node["message"]


@pytest.mark.parametrize("version", REAL)
def test_a_real_old_interpreter_where_this_machine_has_one(played, version):
    if interpreter(version):
        node = played[1][version]
        assert node["status"] in ("ok", "python_too_old"), node["message"]
        assert node["facts"] or "needs Python 3.8 or newer, and this is" in node["message"]


def interpreter(version):
    """A Python of that version: on PATH, or among pyenv's."""
    on_path = shutil.which(f"python{version}")
    places = [Path(on_path)] if on_path and "shims" not in on_path else []
    places += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    return str(places[0]) if places else None
