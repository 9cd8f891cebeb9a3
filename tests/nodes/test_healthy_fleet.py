"""A fleet with nothing wrong: what the audit sees of it, through ansible-playbook over ssh."""

from __future__ import annotations

import json

import audits
import nccl_libraries
import pytest
from four_nodes import NAMES

SERIOUS = ("critical", "error")
SECTIONS = (
    "node", "kernel", "driver", "fabric_manager", "cuda", "nccl", "torch", "gpus", "interconnect",
    "network", "limits", "packages", "faults",
)  # fmt: skip


@pytest.fixture(scope="module")
def healthy(shared_fleet):
    """One audit of the four nodes as they are."""
    return shared_fleet.audit()


def test_every_node_answers_and_the_run_is_complete(healthy):
    assert healthy.code == 0, healthy.stdout + healthy.stderr
    run = json.loads((healthy.folder / "run.json").read_text())
    assert sorted(run["hosts"]) == list(NAMES)
    assert run["finished"]
    assert {name: healthy.node(name)["status"] for name in NAMES} == dict.fromkeys(NAMES, "ok")
    assert (healthy.folder / "report.html").stat().st_size > 1000


def test_nothing_serious_is_found(healthy):
    serious = [
        (entry["rule"], entry.get("host"), entry["found"])
        for entry in healthy.of()
        if entry["severity"] in SERIOUS
    ]
    assert serious == []


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_is_there_on_every_node_and_was_not_cut_short(healthy, section):
    for name in NAMES:
        probe = healthy.section(name, section)["probe"]
        assert probe["status"] in ("ok", "absent"), (name, probe)


def test_driver_and_kernel_are_read_from_the_node_itself(healthy, shared_fleet):
    for name in NAMES:
        assert healthy.section(name, "driver")["loaded"]["version"] == "580.159.04"
        assert (
            healthy.section(name, "kernel")["release"]
            == shared_fleet.nodes[name].shell("uname -r").strip()
        )
        assert healthy.section(name, "node")["hostname"] == name
        assert healthy.section(name, "node")["os"]["id"] == "debian"


def test_the_version_of_nccl_is_read_out_of_the_real_file(healthy):
    for name in NAMES:
        # The environment of the smoke test may have an NCCL of its own: torch has one on some
        # machines.
        installed = [
            library
            for library in healthy.section(name, "nccl")["libraries"]
            if library["path"].startswith(f"/{nccl_libraries.PLACE}/")
        ]
        assert installed
        assert all(library["version"].startswith(nccl_libraries.USUAL) for library in installed), (
            installed
        )


def test_two_audits_in_a_row_agree_on_everything_that_is_no_sample(healthy, fleet):
    again = fleet.audit()
    changed = {
        name: list(
            audits.differences(
                healthy.node(name)["facts"]["sections"], again.node(name)["facts"]["sections"]
            )
        )
        for name in NAMES
    }
    assert changed == {name: [] for name in NAMES}
    assert again.rules() == healthy.rules()
