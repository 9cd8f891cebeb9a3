"""The first screen of a look at a job: twelve lines, the verdict first, one command for the host."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path

import pytest
from inspected import answer_of, certainty_of, inspection_of, render_inspection

from unhang.core.schemas.check import check_schema
from unhang.core.verdict.answer import screen_of

FIXTURES = Path(__file__).parents[4] / "fixtures" / "inspect"
LOOKS = sorted([*FIXTURES.glob("evidence/*.json"), *FIXTURES.glob("two_gpus/evidence/*.json")])


def inspection(name: str) -> dict:
    return inspection_of([json.loads((FIXTURES / "evidence" / f"{name}.json").read_bytes())])


@pytest.mark.parametrize("look", LOOKS, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_no_screen_has_more_than_twelve_lines_and_each_begins_with_the_state(look):
    found = inspection_of([json.loads(look.read_bytes())])
    for width in (60, 100):
        lines = render_inspection(found, width=width).splitlines()
        assert len(lines) <= 12, "\n".join(lines)
        assert lines[0].startswith(
            found["state"]
            if found["state"] in ("hung", "unknown", "running")
            else "not hung so far"
        )
        at = next(number for number, line in enumerate(lines) if re.match(r"next(,.*)?:$", line))
        done = subprocess.run(
            ["bash", "-n", "-c", lines[at + 1]], capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("name", "certainty", "command"),
    [
        ("killed-RAS-and-stacks", "sure", "dmesg -T | grep -e Xid"),
        ("stopped-RAS-and-stacks", "sure", "grep -e State -e TracerPid /proc/"),
        ("loader-RAS-and-stacks", "sure", "py-spy dump --locals --pid 815"),
        ("never-driver-and-proc", "possible", "py-spy dump --pid "),
        ("path-RAS-and-stacks", "likely", "nvidia-smi nvlink -s"),
        ("healthy-RAS", "", "unhang watch --pid "),
        ("init-driver-and-proc", "", "unhang inspect --gap 30"),
    ],
)
def test_sure_is_what_was_observed_and_the_command_fits_it(name, certainty, command):
    found = inspection(name)
    assert certainty_of(found) == certainty
    assert screen_of(answer_of(found)).next_command.startswith(command)


def test_a_rank_that_is_named_by_stacks_alone_is_likely():
    found = copy.deepcopy(inspection("loader-RAS-and-stacks"))
    found["ras"] = None
    assert (found["state"], certainty_of(found)) == ("hung", "likely")


def test_a_host_name_that_a_shell_would_run_is_in_no_command():
    found = copy.deepcopy(inspection("loader-RAS-and-stacks"))
    found["suspects"][0]["host"] = "$(reboot)"
    screen = screen_of(answer_of(found))
    assert "reboot" not in screen.next_command and screen.next_host == ""


def test_a_job_without_gpus_is_not_sent_to_their_links():
    found = copy.deepcopy(inspection("path-RAS-and-stacks"))
    assert "nvlink" in screen_of(answer_of(found)).next_command
    for row in found["ranks"]:
        row["gpu"] = None
    assert screen_of(answer_of(found)).next_command == "unhang inspect --gap 30"


def test_the_trays_of_a_rack_are_named_together():
    said = {
        "gpu01": "1a" * 16,
        "gpu02": "1a" * 16,
        "gpu03": "6d" * 16,
        "gpu04": "$(reboot)",
        "b": "",
    }
    nodes = []
    for host, cluster in said.items():
        node = json.loads((FIXTURES / "evidence" / "healthy-RAS-and-stacks.json").read_bytes())
        for card in node["sections"]["nvml"]["gpus_1"]:
            card["nvlink_domain"] = cluster or None
        nodes.append({**node, "asked_as": host})
    found = inspection_of(nodes)
    assert list(check_schema(found, "inspection-1")) == []
    shown = render_inspection(found, verbose=True).splitlines()
    assert [line for line in shown if "NVLink" in line or line.startswith("nvlink-")] == [
        "nvlink-1a1a1a1a1a1a: gpu01, gpu02",
        "nvlink-6d6d6d6d6d6d: gpu03",
        "no NVLink domain: gpu04, b",
    ]
    alone = render_inspection(inspection_of(nodes[1:]), verbose=True)
    assert "nvlink-" not in alone
