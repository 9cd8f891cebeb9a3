"""Ansible and make take the commands of README and docs, and commands that only read are run on an
audited fleet."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shutil
import subprocess

import page_smoke
import pytest
import yaml
from forked_commands import forked
from inspected import inspection_of, write_bundle
from page_commands import PROJECT, READS, commands, typed_in_tests

from unhang.act.plan.role_remedies import ROLE_ORDER
from unhang.core.nodeset import expand_limit

DEADLINE_S = 280
EARLIER = "20261118T031500Z-0123456789"  # the pages write it as 20261118
COMMANDS = commands()
OWN = [one for one in COMMANDS if one.program == "unhang"]
PLAYBOOKS = [one for one in COMMANDS if one.program == "ansible-playbook"]
MADE = [one for one in COMMANDS if one.program == "make"]


@pytest.mark.parametrize("typed", PLAYBOOKS, ids=str)
def test_its_playbook_is_there_and_ansible_takes_its_options_and_limit(typed):
    from ansible.cli.playbook import PlaybookCLI

    rest = typed.argv[1:]
    of_collection = rest[0].removeprefix("unhang.ops.")
    is_named = of_collection != rest[0]
    playbook = PROJECT / ("playbooks" if is_named else ".") / f"{of_collection}{'.yml' * is_named}"
    assert playbook.is_file(), typed
    cli = PlaybookCLI(["ansible-playbook", str(playbook), *rest[1:]])
    cli.parse()
    limits = [value for name, value in itertools.pairwise(rest) if name == "--limit"]
    assert [limit for limit in limits if "[" in limit and expand_limit(limit) != [limit]] == [], (
        "Ansible reads a node set in its own way"
    )
    given = [value.partition("=") for name, value in itertools.pairwise(rest) if name == "-e"]
    assert [
        name for name, _, _ in given if not re.search(rf"\b{re.escape(name)}\b", text_of_plays())
    ] == []
    assert {
        role for name, _, value in given if name == "unhang_roles" for role in value.split(",")
    } <= {*ROLE_ORDER}


@functools.cache
def text_of_plays():
    """All playbooks and roles."""
    return "".join(
        path.read_text()
        for folder in ("playbooks", "roles")
        for path in (PROJECT / folder).rglob("*.yml")
    )


@pytest.mark.parametrize("typed", MADE, ids=str)
def test_make_has_that_target(typed):
    done = subprocess.run(
        ["make", "-n", "--no-print-directory", *typed.argv[1:]],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# ---- commands that read are run


@pytest.fixture(scope="module")
def place(demo_audit, tmp_path_factory):
    """A folder with everything that the pages name: an audited fleet of the demo's nodes in racks,
    logs, scripts."""
    folder = tmp_path_factory.mktemp("pages")
    in_racks(demo_audit.folder, folder)
    fixtures = PROJECT / "tests" / "fixtures"
    logs = sorted((fixtures / "diagnose" / "acs_iommu").glob("*.log"))
    for name in ("logs", "traces", "scripts", "k8s"):
        (folder / name).mkdir()
    for name in ("job.log", "dmesg.txt", "slurm-4711.out", "logs/rank0.log", "traces/rank0.log"):
        shutil.copy(logs[0], folder / name)
    for name in (
        "train.sh",
        "job.sh",
        "job.sbatch",
        "Dockerfile",
        "k8s/pod.yaml",
        "scripts/run.sh",
    ):
        (folder / name).write_text(
            "export NCCL_P2P_DISABLE=1\n"
            if not name.endswith(("file", "yaml"))
            else "FROM debian\n"
            if name == "Dockerfile"
            else "kind: Pod\n"
        )
    shutil.copytree(
        next(iter(sorted((fixtures / "diagnose_batches" / "1").iterdir()))), folder / "DIR" / "case"
    )
    shutil.copy(
        next(iter((folder / "runs" / "latest" / "nodes").glob("gpu001.json"))), folder / "node.json"
    )
    shutil.copytree(PROJECT / "inventory" / "example", folder / "inventory" / "mycluster")
    shutil.copy(folder / "node.json", folder / "job.json")
    (folder / "job.env").write_text("NCCL_DEBUG=INFO\n")
    looked = [
        json.loads((fixtures / "inspect" / "evidence" / "never-RAS-and-stacks.json").read_text())
    ]
    write_bundle(folder / "hang.tar.gz", looked, inspection_of(looked))
    (folder / "mine").mkdir()
    smoked = folder / "runs" / "smoke" / "20261120T180000.0" / "group"
    smoked.mkdir(parents=True)
    (smoked / "result.json").write_text(json.dumps(page_smoke.result("gpu001")))
    run_again(folder)
    return folder


# {group: numbers of its nodes}
RACKS = {"rack1": range(1, 3), "rack2": range(3, 9), "training": range(1, 5)}


def in_racks(audited, folder):
    """The audit of the demo's nodes as it is when a second inventory puts them into racks."""
    hosts = {name: {f"gpu{number:03}": {} for number in numbers} for name, numbers in RACKS.items()}
    (folder / "racks.yml").write_text(
        yaml.safe_dump(
            {"all": {"children": {name: {"hosts": nodes} for name, nodes in hosts.items()}}}
        )
    )
    run = folder / "runs" / audited.name
    shutil.copytree(audited, run)
    document = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(
        json.dumps({**document, "inventory": [*document["inventory"], str(folder / "racks.yml")]})
    )
    for path in (run / "nodes").glob("gpu*.json"):
        node = json.loads(path.read_text())
        path.write_text(
            json.dumps(
                {
                    **node,
                    "groups": sorted(
                        [*node["groups"], *(name for name in RACKS if path.stem in hosts[name])]
                    ),
                }
            )
        )
    (folder / "runs" / "latest").symlink_to(audited.name)
    done = unhang(folder, "judge", "-q")
    assert done.returncode in (0, 1), done.stderr


def run_again(folder):
    """A second run, as if the first one were from another day."""
    first = (folder / "runs" / "latest").resolve()
    second = first.with_name(EARLIER)
    shutil.copytree(first, second)
    for name in ("run.json", "findings.json"):
        (second / name).write_text((second / name).read_text().replace(first.name, EARLIER))


def on_this_fleet(folder, word):
    """A word of a command with the pages' example names replaced by names that exist here."""
    for example, here in (
        ("20260302T031407Z-5bc520", EARLIER),
        ("gpu[001-016]", "gpu[001-008]"),
        ("/var/lib/prometheus/node-exporter", str(folder)),
    ):
        word = word.replace(example, here)
    return word


def unhang(folder, *argv):
    """A finished `unhang` command in that folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANSIBLE_", "UNHANG_"))
    }
    return forked(
        argv,
        folder,
        {**kept, "UNHANG_RUNS": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")},
    )


def is_here(folder, word):
    """Whether a path in a command was created here; true for every word that is no path."""
    looks = "/" in word or word.endswith((".log", ".json", ".txt"))
    return (
        not looks
        or "://" in word
        or (folder / word).exists()
        or (folder / word).parent.is_dir()
        or word.startswith("-")
    )


READING = {one.argv[1:] for one in OWN if one.argv[1] in READS and one.form not in typed_in_tests()}
# demo makes a run of its own the latest
READING = sorted(READING, key=lambda argv: (argv[0] == "demo", argv))


@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_what_reads_ends_well_on_an_audited_fleet(place, argv):
    argv = tuple(on_this_fleet(place, word) for word in argv)
    if argv[0] == "policy":  # uses good nodes: the last two have another NCCL
        argv = tuple(word.replace("gpu[001-004]", "gpu[001-002]") for word in argv)
    assert [word for word in argv[1:] if not is_here(place, word)] == [], "what is not made here"
    for earlier in (place / "runs").glob("*/plan.json") if argv[0] == "plan" else ():
        earlier.unlink()  # a page's command is the first of its run; another one would need --new
    done = unhang(place, *argv)
    assert done.returncode in (0, 1, 3), done.stdout[-500:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr
