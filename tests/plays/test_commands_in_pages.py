"""Every command in README and docs is one that can be typed: its options are taken by its own parser, and what only reads is run on an audited fleet."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml
from page_commands import BLOCK, PROJECT, commands, pages, scripts

from unhang.cli import command_and_parser
from unhang.nodeset import expand_limit
from unhang.plan.role_remedies import ROLE_ORDER

DEADLINE_S = 280
EARLIER = "20261118T031500Z-0123456789"  # what pages call 20261118
COMMANDS = commands()
OWN = [one for one in COMMANDS if one.program == "unhang"]
PLAYBOOKS = [one for one in COMMANDS if one.program == "ansible-playbook" or one.argv[:2] == ("unhang", "playbook")]
MADE = [one for one in COMMANDS if one.program == "make"]
# What only reads files; everything else acts on nodes, and is run by the test named.
READS = ("diagnose", "lint", "explain", "catalogue", "judge", "report", "plan", "runs", "diff", "history", "completion", "policy", "compare")
RUN_ELSEWHERE = {
    "audit": "tests/plays/test_audit_command.py",
    "collect": "tests/plays/test_installed_wheel.py",
    "remediate": "tests/plays/test_remediate_command.py",
    "preprovision": "tests/plays/test_preprovision_command.py",
    "verify": "tests/plays/test_installed_wheel.py",
    "smoke": "tests/torch/test_local.py",
    "playbook": "tests/plays/test_installed_wheel.py",
}
# Of the commands that act, those that are not run here, by what stands in them: why not, and which test does. First match counts.
NOT_RUN_HERE = (
    ("unhang audit .*--webhook", "sends to an address", "tests/unit/unhang/commands/test_hooks.py"),
    ("unhang audit$", "reads this machine, whatever it is", "tests/plays/test_audit_play.py"),
    ("unhang remediate", "plays every role of a plan over its nodes, preview and all", "tests/plays/test_remediate_command.py"),
    ("unhang preprovision", "admits nodes with GPUs", "tests/plays/test_preprovision_command.py"),
    ("unhang verify", "needs the record of an admission and its key", "tests/plays/test_installed_wheel.py"),
    ("unhang smoke .*--launcher slurm", "needs a Slurm", "tests/torch/test_slurm.py"),
    ("unhang smoke .*--hosts", "needs nodes with torch", "tests/nodes/test_smoke.py"),
    ("unhang smoke", "needs torch", "tests/torch/test_local.py"),
    (".*playbook (?:playbooks/)?remediate", "plays a role on a node, preview and all", "tests/nodes/test_remediate_on_nodes.py"),
    (".*playbook (?:playbooks/)?rollback", "rolls a node back", "tests/nodes/test_remediate_on_nodes.py"),
    (".*playbook (?:playbooks/)?preprovision", "admits nodes with GPUs", "tests/plays/test_preprovision_command.py"),
    (".*playbook (?:playbooks/)?smoke", "needs nodes with torch", "tests/nodes/test_smoke_play.py"),
)
# Programs of others, and ours that are built first: who runs them.
OTHERS = {
    **dict.fromkeys(("ansible", "ansible-inventory", "ansible-doc"), "Ansible's own"),
    **dict.fromkeys(("cd", "cp", "export", "source"), "the shell and coreutils"),
    "ansible-builder": "builds an image, for which nothing is here",
    "ansible-galaxy": "fetches a collection, which is not to be had here",
    "curl": "asks an AWX that is not here",
    "kubectl": "asks a Kubernetes that is not here",
    "srun": "Slurm's own",
    "podman": "no container engine is here; tests/packages/test_containerfile.py plays the steps",
    "run": "CI itself",
    **dict.fromkeys(("scp", "ssh"), "OpenSSH"),
    "ssh-keygen": "OpenSSH",
    "tier": "tests/plays/test_ci_tiers.py",
    "torchrun": "tests/torch/test_by_hand.py",
}
OUR_FILES = {
    "unhang-quick.pyz": "tests/plays/test_quick_pyz.py",
    "unhang-collect.pyz": "tests/plays/test_pyz.py",
    "unhang-offline.pyz": "tests/plays/test_offline_pyz.py",
}


def test_the_pages_hold_commands():
    assert len(COMMANDS) > 60 and len(OWN) > 40 and len(PLAYBOOKS) > 5 and len(MADE) > 5


@pytest.mark.parametrize("typed", OWN, ids=str)
def test_its_options_are_those_that_the_command_takes(typed):
    _, parser = command_and_parser(typed.argv[1])
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            parser.parse_args(typed.argv[2:])
    except SystemExit as end:
        assert end.code == 0, f"{typed}: {output.getvalue()}"


@pytest.mark.parametrize("typed", PLAYBOOKS, ids=str)
def test_its_playbook_is_there_and_ansible_takes_its_options_and_limit(typed):
    from ansible.cli.playbook import PlaybookCLI

    rest = typed.argv[2:] if typed.program == "unhang" else typed.argv[1:]
    playbook = PROJECT / "playbooks" / f"{rest[0]}.yml" if typed.program == "unhang" else PROJECT / rest[0]
    assert playbook.is_file(), typed
    cli = PlaybookCLI(["ansible-playbook", str(playbook), *rest[1:]])
    cli.parse()
    limits = [value for name, value in itertools.pairwise(rest) if name == "--limit"]
    assert [limit for limit in limits if "[" in limit and expand_limit(limit) != [limit]] == [], "Ansible reads a node set in its own way"
    given = [value.partition("=") for name, value in itertools.pairwise(rest) if name == "-e"]
    text = "".join(path.read_text() for path in (PROJECT / "playbooks").rglob("*.yml")) + "".join(
        path.read_text() for path in (PROJECT / "roles").rglob("*.yml")
    )
    assert [name for name, _, _ in given if not re.search(rf"\b{re.escape(name)}\b", text)] == []
    assert {role for name, _, value in given if name == "unhang_roles" for role in value.split(",")} <= {*ROLE_ORDER}


@pytest.mark.parametrize("typed", MADE, ids=str)
def test_make_has_that_target(typed):
    done = subprocess.run(["make", "-n", "--no-print-directory", *typed.argv[1:]], cwd=PROJECT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr


def test_every_other_program_is_one_that_somebody_has_or_builds():
    rest = [one for one in COMMANDS if one not in (*OWN, *PLAYBOOKS, *MADE)]
    unknown = [str(one) for one in rest if one.program not in OTHERS and not any(word in OUR_FILES for word in one.argv) and "pytest" not in one.argv]
    assert unknown == []
    assert [path for path in {*OUR_FILES.values(), *RUN_ELSEWHERE.values()} if not (PROJECT / path).is_file()] == []
    for one in rest:
        assert [word for word in one.argv if word.startswith("tests/") and not (PROJECT / word).exists()] == [], one


@pytest.mark.parametrize("name", RUN_ELSEWHERE)
def test_what_acts_is_run_by_the_test_that_is_named(name):
    assert f'"{name}"' in (PROJECT / RUN_ELSEWHERE[name]).read_text() or name in ("audit", "smoke")


@pytest.mark.parametrize(("page", "text"), scripts(), ids=[page for page, _ in scripts()])
def test_a_script_of_a_page_is_one_that_sh_reads(page, text):
    done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), page


def test_no_command_stands_where_no_test_reads_it():
    """In a block that is only indented. Roles show playbooks of one's own so."""
    fenced = re.compile(r"^( *)```.*?^ *```", re.DOTALL | re.MULTILINE)
    typed = re.compile(r"^ {4,}(?:\$ )?(?:\.venv/bin/)?(?:unhang [a-z]+ |make [a-z]|ansible-playbook )", re.MULTILINE)
    outside = {path: fenced.sub("", path.read_text()) for path in pages() if "roles" not in path.parts}
    assert {str(path.relative_to(PROJECT)): found for path, text in outside.items() if (found := typed.findall(text))} == {}


def crons():
    """(page, arguments of unhang) of each line of cron's."""
    lines = [(path, line) for path in pages() for block in re.findall(r"```text\n(.*?)```", path.read_text(), re.DOTALL) for line in block.splitlines()]
    lines = [(path.name, line) for path, line in lines if re.match(r"(?:[\d*/,-]+ +){5}", line)]
    return [(page, tuple(shlex.split(typed))) for page, line in lines for typed in re.findall(r"\.venv/bin/unhang ([^;|&]+)", line)]


@pytest.mark.parametrize(("page", "argv"), crons(), ids=[f"{page}: {' '.join(argv)}" for page, argv in crons()])
def test_a_line_of_crons_is_one_that_the_command_takes(page, argv):
    _, parser = command_and_parser(argv[0])
    parser.parse_args(argv[1:])


def inline():
    """(page, text) of each `unhang …` between backticks in running text and tables."""
    found = {}
    for path in pages():
        text = BLOCK.sub("", path.read_text())
        for typed in re.findall(r"`(?:\.venv/bin/)?(unhang [a-z][^`\n]*)`", text):
            found[typed] = str(path.relative_to(PROJECT))
    return sorted((page, typed) for typed, page in found.items())


def test_a_command_between_backticks_has_a_name_and_options_that_there_are():
    wrong = []
    for page, typed in inline():
        argv = typed.split()
        if argv[1] == "help":
            continue
        if argv[1] not in {*READS, *RUN_ELSEWHERE}:
            wrong.append(f"{page}: {typed}")
            continue
        _, parser = command_and_parser(argv[1])
        own = typed.partition(" -- ")[0].partition(" | ")[0]  # what follows is Ansible's, or another program's
        options = re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", own)
        wrong += [f"{page}: {typed}" for option in options if option not in parser._option_string_actions]
    assert wrong == []


def test_no_command_is_left_out():
    assert {one.argv[1] for one in OWN} <= {*READS, *RUN_ELSEWHERE}


# ---- what reads, run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with all that the pages name: an audited fleet of the demo's nodes in racks, logs, scripts."""
    folder = tmp_path_factory.mktemp("pages")
    hosts = {"rack1": "gpu[001:002]", "rack2": "gpu[003:008]", "training": "gpu[001:004]"}
    racks = {"all": {"children": {name: {"hosts": {pattern: {}}} for name, pattern in hosts.items()}}}
    (folder / "racks.yml").write_text(yaml.safe_dump(racks))
    command = ["audit", "-i", str(PROJECT / "inventory" / "demo"), "-i", "racks.yml", "--out", "runs", "-q"]
    done = unhang(folder, *command)
    assert done.returncode == 1, done.stderr
    fixtures = PROJECT / "tests" / "fixtures"
    logs = sorted((fixtures / "diagnose" / "acs_iommu").glob("*.log"))
    for name in ("logs", "traces", "scripts", "k8s"):
        (folder / name).mkdir()
    for name in ("job.log", "dmesg.txt", "slurm-4711.out", "logs/rank0.log", "traces/rank0.log"):
        shutil.copy(logs[0], folder / name)
    for name in ("train.sh", "job.sh", "job.sbatch", "Dockerfile", "k8s/pod.yaml", "scripts/run.sh"):
        (folder / name).write_text(
            "export NCCL_P2P_DISABLE=1\n" if not name.endswith(("file", "yaml")) else "FROM debian\n" if name == "Dockerfile" else "kind: Pod\n"
        )
    shutil.copytree(next(iter(sorted((fixtures / "diagnose_batches" / "1").iterdir()))), folder / "DIR" / "case")
    shutil.copy(next(iter((folder / "runs" / "latest" / "nodes").glob("gpu001.json"))), folder / "node.json")
    shutil.copytree(PROJECT / "inventory" / "example", folder / "inventory" / "mycluster")
    shutil.copy(folder / "node.json", folder / "job.json")
    (folder / "job.env").write_text("NCCL_DEBUG=INFO\n")
    (folder / "mine").mkdir()
    run_again(folder)
    return folder


def run_again(folder):
    """A second run in the history, as if the first had been made on another day."""
    first = (folder / "runs" / "latest").resolve()
    second = first.with_name(EARLIER)
    shutil.copytree(first, second)
    for name in ("run.json", "findings.json"):
        (second / name).write_text((second / name).read_text().replace(first.name, EARLIER))
    done = unhang(folder, "runs", "--add", str(second))
    assert done.returncode == 0, done.stderr


def on_this_fleet(folder, word):
    """A word of a command with what pages take for an example in place of what is here."""
    for example, here in (("20260302T031407Z-5bc520", EARLIER), ("gpu[001-016]", "gpu[001-008]"), ("/var/lib/prometheus/node-exporter", str(folder))):
        word = word.replace(example, here)
    return word


def unhang(folder, *argv):
    """A finished `unhang` in that folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "UNHANG_"))}
    environment = {**kept, "UNHANG_RUNS": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "unhang", *argv], cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def is_here(folder, word):
    """Whether a path of a command is one that was made here; a word that is no path always is."""
    looks = "/" in word or word.endswith((".log", ".json", ".txt"))
    return not looks or "://" in word or (folder / word).exists() or (folder / word).parent.is_dir() or word.startswith("-")


def why_not_here(typed):
    """(why, which test runs it) of a command that acts; None where it is run here."""
    line = " ".join((typed.program, *typed.argv[1:]))
    return next(((why, path) for pattern, why, path in NOT_RUN_HERE if re.match(pattern, line)), None)


ACTING = [one for one in (*OWN, *PLAYBOOKS) if one.argv[1] not in READS]
RUN_HERE = sorted({one.argv[1:] for one in ACTING if why_not_here(one) is None})


def test_what_acts_is_run_here_or_has_a_reason_and_a_test_that_is_there():
    assert {argv[0] for argv in RUN_HERE} == {"audit", "collect"}
    used = {why_not_here(one) for one in ACTING} - {None}
    assert {(why, path) for _, why, path in NOT_RUN_HERE} == used, "a reason that no command needs"
    assert [path for _, path in sorted(used) if not (PROJECT / path).is_file()] == []


@pytest.mark.parametrize("argv", RUN_HERE, ids=" ".join)
def test_what_audits_is_run_on_a_node_of_the_recorded_fleet(tmp_path, argv):
    hook = tmp_path / "page-somebody"
    hook.write_text(f"#!/bin/sh\ncat > {tmp_path}/told.json\n")
    hook.chmod(0o755)
    demo = str(PROJECT / "inventory" / "demo")
    places = (("inventory/mycluster", demo), ("hosts.yml", demo), ("/usr/local/bin/page-somebody", str(hook)))
    for example, here in (*places, ("training:!spare", "fsdp01:!spare"), ("gpu[001-016],!gpu007", "gpu[007-008],!gpu007")):
        argv = [word.replace(example, here) for word in argv]
    limit = ["--limit", "gpu007"] if argv[0] == "audit" and "--limit" not in argv else []
    done = unhang(tmp_path, *argv, *limit)
    assert done.returncode in (0, 1), done.stdout[-500:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    if argv[0] == "collect":
        assert json.loads(done.stdout)["schema"] == "unhang/node-facts/1"
        return
    asked = {"gpu[007-008],!gpu007": "gpu008", "fsdp01:!spare": "fsdp01"}.get(argv[argv.index("--limit") + 1] if "--limit" in argv else "", "gpu007")
    assert [path.stem for path in (tmp_path / "runs" / "latest" / "nodes").glob("*.json")] == [asked]


@pytest.mark.parametrize("argv", sorted({one.argv[1:] for one in OWN if one.argv[1] in READS}), ids=" ".join)
def test_what_reads_ends_well_on_an_audited_fleet(place, argv):
    argv = tuple(on_this_fleet(place, word) for word in argv)
    missing = [word for word in argv[1:] if not is_here(place, word)]
    if missing or "-i" in argv:
        pytest.skip(f"needs what is not made here: {' '.join(missing) or 'an inventory'}")
    done = unhang(place, *argv)
    assert done.returncode in (0, 1, 3, 4), done.stdout[-500:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr
