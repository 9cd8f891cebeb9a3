"""`unhang preprovision` over local connections: its outcome in three forms, the playbook's exit
codes, and one line where nothing was decided."""

from __future__ import annotations

import json
import subprocess
from xml.etree import ElementTree

import pytest
from documented_command import as_typed
from local_fleet import CLEAN, envelope, run, unhang_argv


def preprovision(fleet, *arguments):
    """A finished `unhang preprovision` with the fleet's own runs folder."""
    return unhang(fleet, "preprovision", *arguments, "-i", fleet.inventory, "--out", fleet.runs)


def unhang(fleet, *argv):
    """A finished command in the fleet's folder."""
    return run(
        unhang_argv(*argv),
        {**CLEAN, "ANSIBLE_HOME": str(fleet.folder / "home"), "UNHANG_RUNS": str(fleet.runs)},
        fleet.folder,
    )


@pytest.fixture
def pair(fleet):
    """Two nodes that answer the audit and nothing else, and therefore cannot prove anything."""
    for name in ("gpu001", "gpu002"):
        fleet.answering(name, envelope())
    fleet.groups["gpu"] = ["gpu001", "gpu002"]
    (fleet.folder / "ranges.txt").write_text("gpu[001-002]\n")
    return fleet


def test_nodes_that_prove_nothing_end_with_3_and_the_page_and_json_lie_in_the_run(pair):
    done = preprovision(pair, "gpu[001-002]")
    assert done.returncode == 3, done.stderr[-3000:]
    assert done.stdout.startswith(" NOT PROVED  gpu001\n             alone: could not be asked: ")
    assert "gate       0 pass, 0 fail, 2 not proved" in done.stdout
    steps = [line for line in done.stderr.splitlines() if line.startswith("unhang: ")]
    assert steps == [
        "unhang: audit", "unhang: judge the facts of the audit",
        "unhang: smoke test, each node alone", "unhang: smoke test, together", "unhang: decide",
    ]  # fmt: skip
    [folder] = [
        path
        for path in pair.runs.iterdir()
        if (path / "run.json").is_file() and not path.is_symlink()
    ]
    kept = json.loads((folder / "gate.json").read_text())
    assert {row["host"]: row["outcome"] for row in kept["nodes"]} == {
        "gpu001": "not proved",
        "gpu002": "not proved",
    }
    assert (folder / "report.html").is_file()
    assert kept["run"] == folder.name


def test_a_node_that_the_policy_refuses_fails_with_2_in_json_and_junit(pair):
    pair.hosts["gpu002"]["unhang_policy"] = {"no_such_key": 1}
    done = preprovision(
        pair, "gpu001,gpu002", "--format", "json", "--severities", "critical,error,warning,info"
    )
    document = json.loads(done.stdout)
    assert document["schema"] == "unhang/gate/1"
    assert document["severities"] == ["critical", "error", "warning", "info"]
    outcomes = {row["host"]: (row["outcome"], row["reasons"]) for row in document["nodes"]}
    assert outcomes["gpu002"][0] == "fail", outcomes
    assert done.returncode == 1
    junit = ElementTree.fromstring(preprovision(pair, "gpu001", "--format", "junit").stdout)
    assert (junit.get("tests"), junit.get("errors")) == ("1", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpu009"], "hosts, but none that gpu009 names"),
        (["gpu[001,009]", "--quick"], "names; list them with"),
        (["gpu[1-"], "is not a node set such as gpu[001-016]"),
        (
            ["gpu001", "--reference", "gpu009"],
            "--reference takes a host of the inventory, not gpu009",
        ),
        (
            ["gpu001", "--severities", "bad"],
            "--severities takes some of critical, error, warning, info, not bad",
        ),
        (["gpu001", "--ansible=--check"], "the gate cannot run with --check"),
        (
            ["@ranges.txt"],
            "--limit gpu[001-002] can be read in two ways, for it has a range",
        ),
        (["gpu001", "--ansible=--no-such"], "unrecognized arguments: --no-such"),
    ],
)
def test_wrong_use_is_2_and_one_line_that_says_what_was_expected(pair, arguments, message):
    done = preprovision(pair, *arguments)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    output = [line for line in done.stderr.splitlines() if line != "unhang: audit"]
    assert len(output) == 1, output
    assert message in output[0]


HERE = {"gpu[017-018]": "gpu002", "inventory/mycluster": "hosts.yml"}
TYPED = (
    as_typed("unhang preprovision -l gpu[017-018] -i inventory/mycluster --reference gpu001", HERE),
    as_typed(
        "unhang preprovision -l gpu[017-018] -i inventory/mycluster --reference gpu001"
        " --python /opt/torch/bin/python",
        HERE,
    ),
    as_typed(
        "unhang preprovision -l gpu[017-018] -i inventory/mycluster --reference gpu001 --key"
        " ~/gate_key --days 180",
        HERE,
    ),
)


@pytest.mark.parametrize("argv", TYPED, ids=[" ".join(argv[7:]) or "alone" for argv in TYPED])
def test_the_reference_is_tested_with_the_others_without_being_named_twice(pair, argv):
    """With the page's commands. Nodes that prove nothing get no record, however many keys exist."""
    key = pair.folder / "gate_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    pair.inventory.touch()  # creates the inventory file
    done = unhang(
        pair, *[word.replace("~", str(pair.folder)) for word in argv[1:]], "--format", "json"
    )
    document = json.loads(done.stdout)
    assert document["reference"] == "gpu001"
    assert sorted(row["host"] for row in document["nodes"]) == ["gpu001", "gpu002"]
    assert done.returncode == 3
    assert not (pair.runs / document["run"] / "admission").exists()


ALL = ("--severities", "critical,error,warning,info")


def test_a_quick_gate_asks_the_audit_alone_and_admits_nobody(pair):
    pair.hosts["gpu002"]["unhang_policy"] = {"no_such_key": 1}
    done = preprovision(pair, "gpu001,gpu002", "--quick", "--format", "json", *ALL)
    document = json.loads(done.stdout)
    assert (done.returncode, document["quick"], document["smoke"]) == (
        1,
        True,
        {"alone": {}, "together": None},
    )
    assert {row["host"]: row["outcome"] for row in document["nodes"]}["gpu002"] == "fail"
    assert not any("smoke test" in reason for row in document["nodes"] for reason in row["reasons"])
    assert "smoke" not in done.stderr
    assert not (pair.runs / document["run"] / "admission").exists()


@pytest.mark.parametrize(
    ("program", "failed", "wrong"), [("slurm-prolog", 1, 0), ("kubernetes", 1, 2)]
)
def test_a_host_program_is_answered_with_its_own_exit_code_and_only_a_fail_drains(
    pair, program, failed, wrong
):
    pair.hosts["gpu002"]["unhang_policy"] = {"no_such_key": 1}
    done = preprovision(pair, "gpu002", "--quick", "--as", program, *ALL)
    assert (done.returncode, len(done.stdout.splitlines())) == (failed, 1), done.stderr[-2000:]
    assert done.stdout.startswith("audit: ")
    lazy = preprovision(pair, "gpu002", "--as", program)
    assert (
        lazy.returncode,
        lazy.stdout.startswith("not checked: --as needs --quick beside it"),
    ) == (wrong, True)
