"""`unhang audit --via` gives the run that Ansible's tasks give, `--continue` reads what is missing,
and `--via files` makes one run of several."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from documented_command import as_typed
from local_fleet import ANY_FACTS, DEADLINE_S, PROJECT, read, run

POLICY = {"driver": {"version": "580.159.04"}}


@pytest.fixture
def unhang(fleet):
    """Runs a command of unhang among the hosts of the fleet: a finished process."""

    def do(*arguments, **environment):
        mine = fleet.environment(**environment)
        del mine["UNHANG_JUDGE"]
        return run([sys.executable, "-m", "unhang", *arguments], mine, fleet.folder)

    return do


@pytest.fixture
def documents(fleet):
    """The folder of documents, with the two nodes' answers."""
    folder = fleet.folder / "documents"
    folder.mkdir()
    for host in ("gpu001", "gpu002"):
        sections = {"node": {"probe": {"status": "ok"}, "hostname": host}}
        (folder / f"{host}.json").write_text(json.dumps({**ANY_FACTS, "sections": sections}))
    return folder


def comparable(fleet):
    """What a run says, without the time and its name."""
    findings = read(fleet.runs / "latest" / "findings.json")
    return {key: findings[key] for key in ("findings", "node_verdicts", "totals_by_rule")}


def two_hosts(fleet, documents):
    for host in ("gpu001", "gpu002"):
        facts = (documents / f"{host}.json").read_text()
        fleet.answering(host, json.dumps({"changed": False, "node_facts": facts}))
    fleet.hosts["gpu001"]["unhang_policy"] = {"driver": {"version": "{{ wanted }}"}}
    fleet.hosts["gpu001"]["wanted"] = POLICY["driver"]["version"]
    fleet.groups["training"] = ["gpu001", "gpu002"]


def test_files_give_the_nodes_the_findings_and_the_report_that_ansible_gives(
    fleet, documents, unhang
):
    two_hosts(fleet, documents)
    by_ansible = unhang("audit", "-i", fleet.inventory)
    nodes, found = fleet.nodes(), comparable(fleet)
    places = {"inventory/mycluster": fleet.inventory, "/shared/facts": documents}
    by_files = unhang(
        *as_typed("unhang audit --via files -i inventory/mycluster /shared/facts", places)[1:]
    )
    assert fleet.nodes() == nodes
    assert nodes["gpu001"]["policy"] == POLICY
    assert nodes["gpu002"]["groups"] == ["training"]
    assert comparable(fleet) == found
    assert by_files.returncode == by_ansible.returncode
    shown = [
        re.sub(r"20\d{6}T\d{6}Z-\w+|20[\d-]{8} [\d:]{8}", "RUN", one.stdout)
        for one in (by_ansible, by_files)
    ]
    assert shown[0] == shown[1]


def test_a_node_without_a_document_is_a_finding_and_is_read_when_the_run_is_continued(
    fleet, documents, unhang
):
    two_hosts(fleet, documents)
    (documents / "gpu002.json").rename(fleet.folder / "late.json")
    first = unhang("audit", "-i", fleet.inventory, "--via", "files", documents)
    assert {host: node["status"] for host, node in fleet.nodes().items()} == {
        "gpu001": "ok",
        "gpu002": "failed",
    }
    assert fleet.nodes()["gpu002"]["message"] == "no document of this node came"
    assert "node-failed" in first.stdout
    before = (fleet.runs / "latest" / "nodes" / "gpu001.json").stat().st_mtime_ns
    second = unhang(*as_typed("unhang audit --continue latest")[1:])
    assert {host: node["status"] for host, node in fleet.nodes().items()} == {
        "gpu001": "ok",
        "gpu002": "ok",
    }, second.stderr
    assert (fleet.runs / "latest" / "nodes" / "gpu001.json").stat().st_mtime_ns == before
    assert "node-failed" not in second.stdout
    third = unhang("audit", "--continue", "latest")
    assert third.returncode == 2
    assert "every node has its answer" in third.stderr


def test_what_is_no_document_makes_its_host_invalid_or_is_named_with_code_2(
    fleet, documents, unhang
):
    (documents / "gpu002.json").write_text('{"schema": "unhang/node-facts/1", "coll')
    (documents / "noise.log").write_text("Killed\n")
    done = unhang("audit", "--via", "files", documents)
    assert done.returncode == 1
    assert {host: node["status"] for host, node in fleet.nodes().items()} == {
        "gpu001": "ok",
        "gpu002": "invalid",
        "noise": "invalid",
    }
    with_noise = unhang("audit", "--via", "files", documents / "gpu001.json", "-")
    assert with_noise.returncode == 2
    assert "standard input: it is empty, not a document of unhang collect" in with_noise.stderr
    assert list(fleet.nodes()) == ["gpu001"]
    nothing = unhang("audit", "--via", "files", fleet.folder / "missing")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "missing is missing, not a folder, a tar, a file of documents or -" in nothing.stderr


def test_groups_that_rival_for_a_policy_are_refused_as_ansible_way_refuses_them(
    fleet, documents, unhang
):
    two_hosts(fleet, documents)
    del fleet.hosts["gpu001"]["unhang_policy"]
    (fleet.folder / "group_vars").mkdir()
    for group, version in (("training", "1.1"), ("other", "1.2")):
        fleet.groups[group] = ["gpu001"]
        (fleet.folder / "group_vars" / f"{group}.yml").write_text(
            json.dumps({"unhang_policy": {"driver": {"version": version}}})
        )
    refused = [
        unhang("audit", "-i", fleet.inventory, *way) for way in ([], ["--via", "files", documents])
    ]
    assert [one.returncode for one in refused] == [2, 2]
    assert refused[0].stderr == refused[1].stderr
    assert "no one group gives gpu001 unhang_policy" in refused[1].stderr


def test_one_run_of_several_has_each_node_once_and_names_what_contradicts_itself(
    fleet, documents, unhang
):
    two_hosts(fleet, documents)
    (documents / "gpu002.json").rename(fleet.folder / "late.json")
    unhang("audit", "-i", fleet.inventory, "--via", "files", documents)
    first = (fleet.runs / "latest").resolve()
    unhang("audit", "--via", "files", fleet.folder / "late.json", documents)
    second = (fleet.runs / "latest").resolve()
    sites = {"/srv/site-a/runs/latest": second, "/srv/site-b/runs/latest": first}
    typed = as_typed(
        "unhang audit --via files /srv/site-a/runs/latest /srv/site-b/runs/latest", sites
    )
    merged = unhang(*typed[1:])
    assert (fleet.runs / "latest").resolve() not in (first, second)
    assert {host: node["status"] for host, node in fleet.nodes().items()} == {
        "gpu001": "ok",
        "gpu002": "ok",
    }
    assert "gpu002" in merged.stderr
    assert "failed in the one, ok in the other" in merged.stderr


@pytest.fixture
def sent(fleet, documents, unhang):
    """(a run that was made here and misses a node, the same run as somebody else may have changed
    and sent it, the file that its programs would make)."""
    two_hosts(fleet, documents)
    (documents / "gpu002.json").rename(fleet.folder / "late.json")
    unhang("audit", "-i", fleet.inventory, "--via", "files", documents)
    own = (fleet.runs / "latest").resolve()
    foreign, program, made = (
        fleet.folder / "sent" / own.name,
        fleet.folder / "hosts.sh",
        fleet.folder / "made",
    )
    shutil.copytree(own, foreign)
    program.write_text(f"#!/bin/sh\ntouch {made}\necho '{{}}'\n")
    program.chmod(0o755)
    document = json.loads((foreign / "run.json").read_text())
    (foreign / "run.json").write_text(
        json.dumps(
            {
                **document,
                "inventory": [str(program)],
                "options": ["--vault-password-file", str(program)],
            }
        )
    )
    return own, foreign, made


def test_a_run_of_somebody_else_chooses_no_inventory_and_no_option(fleet, sent, unhang):
    own, foreign, made = sent
    refused = unhang("audit", "--continue", foreign)
    assert (refused.returncode, "give it as --inventory" in refused.stderr) == (2, True), (
        refused.stderr
    )
    given = unhang("audit", "--continue", foreign, "-i", fleet.inventory)
    assert read(foreign / "nodes" / "gpu002.json")["status"] == "ok", given.stderr
    assert "--vault-password-file" not in given.stdout
    assert not made.exists()
    unhang("audit", "--continue", own)
    assert {host: node["status"] for host, node in fleet.nodes().items()} == {
        "gpu001": "ok",
        "gpu002": "ok",
    }


@pytest.fixture
def held(fleet, documents, unhang):
    """Two runs, of which another program holds a document: (their folders, whether a program waits
    for it)."""
    runs = []
    for host in ("gpu001", "gpu002"):
        unhang("audit", "--via", "files", documents / f"{host}.json")
        runs.append((fleet.runs / "latest").resolve())
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # what the system tells the holder
    with (runs[1] / "nodes" / "gpu002.json").open() as document:
        try:
            fcntl.fcntl(document, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as problem:
            pytest.skip(f"this file system has no leases: {problem}")
        yield runs, lambda: fcntl.fcntl(document, fcntl.F_GETLEASE) != fcntl.F_WRLCK
    signal.signal(signal.SIGIO, before)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_who_stops_the_making_of_a_run_leaves_nothing_of_it(fleet, held, number):
    runs, waits = held
    environment = fleet.environment()
    arguments = [sys.executable, "-m", "unhang", "audit", "--via", "files", *map(str, runs)]
    with subprocess.Popen(
        arguments,
        env=environment,
        cwd=fleet.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as making:
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not waits():
                assert time.monotonic() < deadline and making.poll() is None, (
                    "it did not come to the second document"
                )
                time.sleep(0.01)
            assert len(list(fleet.runs.glob("2*"))) == 3
            making.send_signal(number)
            out, errors = making.communicate(timeout=DEADLINE_S)
        finally:
            making.kill()
    assert (making.returncode, out) == (2, "")
    assert (
        errors.splitlines()[-1]
        == "unhang: it was stopped by hand; no run was made, and what was to be read is as it was"
    )
    assert sorted(path.name for path in fleet.runs.glob("2*")) == sorted(run.name for run in runs)
    assert (fleet.runs / "latest").resolve() == runs[1]


def test_the_play_that_opens_an_audit_asks_no_node(fleet):
    fleet.interpreter("gpu001", f"touch {fleet.folder}/asked\n")
    done = fleet.play(
        playbook=PROJECT / "playbooks" / "open_audit.yml",
        environment={"UNHANG_HOST_VALUES": "group_names", "UNHANG_HOST_SECRETS": "x"},
    )
    assert done.returncode == 0, done.stderr
    assert not (fleet.folder / "asked").exists()
    assert fleet.nodes()["gpu001"]["message"] == "the play ended before this node was asked"
