"""What a real node with four H200 answered to the whole playbook (docs/benchmarks.md names the
machine): judged, and compared with nvidia-smi there."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from unhang.cli import main

TESTS = Path(__file__).parents[1]
REAL = TESTS / "fixtures" / "h200x4"


def read(name):
    return json.loads((REAL / name).read_text(encoding="utf-8"))


def judged(folder, facts):
    """findings.json of a run that holds the real node with these facts."""
    (folder / "nodes").mkdir(parents=True)
    node = {**read("node.json"), "facts": facts}
    (folder / "nodes" / "localhost.json").write_text(json.dumps(node), encoding="utf-8")
    run = {
        "schema": "unhang/run/1",
        "id": "r1",
        "started": "2026-11-20T05:04:47Z",
        "finished": "2026-11-20T05:04:50Z",
        "hosts": ["localhost"],
    }
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    # As of the day of the recording: a driver branch that ends later must not change what was
    # healthy then.
    assert main(["judge", str(folder), "--format", "json", "--now", "2026-11-20"]) in (0, 1)
    return json.loads((folder / "findings.json").read_text(encoding="utf-8"))


@pytest.fixture
def agreement():
    spec = importlib.util.spec_from_file_location("agreement", TESTS / "bench" / "agreement.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "facts", [read("node.json")["facts"], read("busy.json")], ids=["idle", "while a NCCL job runs"]
)
def test_a_healthy_node_yields_nothing_above_info(tmp_path, facts):
    found = judged(tmp_path / "run", facts)
    assert found["totals"]["pass"] > 100
    assert [
        (one["rule"], one["severity"])
        for one in found["findings"]
        if one["verdict"] == "fail" and one["severity"] != "info"
    ] == []


def test_idle_node_has_no_process_on_its_gpus():
    gpus = read("node.json")["facts"]["sections"]["gpus"]
    assert gpus["holders"] == []
    assert [gpu["processes"] for gpu in gpus["devices"]] == [[], [], [], []]


def test_busy_node_tells_who_holds_the_gpus_and_which_nccl_the_job_has_mapped():
    sections = read("busy.json")["sections"]
    ranks = {process["pid"] for gpu in sections["gpus"]["devices"] for process in gpu["processes"]}
    assert len(ranks) == 4
    assert ranks <= {holder["pid"] for holder in sections["gpus"]["holders"]}
    mapped = [library for library in sections["nccl"]["libraries"] if library["origin"] == "mapped"]
    assert [library["version"] for library in mapped] == ["2.28.9"]
    assert ranks <= {process["pid"] for process in mapped[0]["mapped_by"]}
    assert [
        library["version"]
        for library in sections["nccl"]["libraries"]
        if library["is_loader_default"]
    ] == ["2.28.3"]
    assert [
        (one["torch"], one["nccl"], one["origin"]) for one in sections["torch"]["environments"]
    ] == [("2.11.0+cu130", "2.28.9", "mapped")]


def test_every_value_agrees_with_what_nvidia_smi_said_there(agreement):
    lines, compared = agreement.disagreements(
        read("node.json")["facts"], (REAL / "nvidia-smi-q.xml").read_text(encoding="utf-8")
    )
    # the collector of that day did not ask for it
    others = [one for one in lines if " clocks.sm_default_mhz: facts None" not in one]
    assert (others, len(lines), compared) == ([], 4, 140)
