"""Every command in README and docs can be typed: its own parser accepts its options, and commands that only read are run on an audited fleet."""

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

import page_smoke
import pytest
import yaml
from page_commands import AUDITS, BLOCK, PROJECT, commands, pages, scripts, typed_in_tests

from unhang.base.nodeset import expand_limit
from unhang.cli import command_and_parser
from unhang.repair.plan.role_remedies import ROLE_ORDER

DEADLINE_S = 280
EARLIER = "20261118T031500Z-0123456789"  # the pages write it as 20261118
COMMANDS = commands()
OWN = [one for one in COMMANDS if one.program == "unhang"]
PLAYBOOKS = [one for one in COMMANDS if one.program == "ansible-playbook" or one.argv[:2] == ("unhang", "playbook")]
MADE = [one for one in COMMANDS if one.program == "make"]
# Commands that only read files are run here. Commands that act are run by another test, as the page has them: as_typed() of documented_command.
READS = ("diagnose", "lint", "explain", "catalogue", "judge", "report", "plan", "runs", "diff", "history", "completion", "policy", "compare")
ACTS = ("audit", "collect", "remediate", "preprovision", "verify", "smoke", "playbook")
# Other projects' programs that a test runs, either as the page has them or with other arguments.
OTHERS = {
    **dict.fromkeys(("cp", "export", "source", "ssh-keygen", "ansible-inventory"), "tests/plays/test_commands_that_act.py"),
    "tier": "tests/unit/test_ci_tier.py",
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


def not_run():
    """The programs that docs/testing.md lists as run by no test."""
    _, _, table = (PROJECT / "docs" / "testing.md").read_text().partition("| not run | ")
    rows = itertools.takewhile(lambda line: line.startswith("|"), table.splitlines()[2:])
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_what_a_container_is_told_is_what_the_command_takes():
    [typed] = [one for one in COMMANDS if one.program == "podman"]
    _, parser = command_and_parser(typed.argv[typed.argv.index("unhang") + 1])
    parser.parse_args(typed.argv[typed.argv.index("unhang") + 2 :])


def test_every_other_program_is_run_by_a_test_or_the_page_on_testing_says_why_not():
    rest = [one for one in COMMANDS if one not in (*OWN, *PLAYBOOKS, *MADE)]
    left = {one.program for one in rest if one.program not in OTHERS and not any(word in OUR_FILES for word in one.argv[:3])}
    assert left | {"make"} == not_run(), "docs/testing.md has those that no test runs, and no others"
    assert {*OTHERS} - {one.program for one in rest} == set()
    assert [path for path in {*OUR_FILES.values(), *OTHERS.values()} if not (PROJECT / path).is_file()] == []
    for one in rest:
        assert [word for word in one.argv if word.startswith("tests/") and not (PROJECT / word).exists()] == [], one


@pytest.mark.parametrize(("page", "text"), scripts(), ids=[page for page, _ in scripts()])
def test_a_script_of_a_page_is_one_that_sh_reads(page, text):
    done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), page


def test_no_command_stands_where_no_test_reads_it():
    """A command in a block that is only indented. Pages of roles are left out, because they show a site's own playbooks in this form."""
    fenced = re.compile(r"^( *)```.*?^ *```", re.DOTALL | re.MULTILINE)
    typed = re.compile(r"^ {4,}(?:\$ )?(?:\.venv/bin/)?(?:unhang [a-z]+ |make [a-z]|ansible-playbook )", re.MULTILINE)
    outside = {path: fenced.sub("", path.read_text()) for path in pages() if "roles" not in path.parts}
    assert {str(path.relative_to(PROJECT)): found for path, text in outside.items() if (found := typed.findall(text))} == {}


def crons():
    """(page, arguments of unhang) of each crontab line."""
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
        if argv[1] not in {*READS, *ACTS}:
            wrong.append(f"{page}: {typed}")
            continue
        _, parser = command_and_parser(argv[1])
        own = typed.partition(" -- ")[0].partition(" | ")[0]  # the rest belongs to Ansible or to another program
        options = re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", own)
        wrong += [f"{page}: {typed}" for option in options if option not in parser._option_string_actions]
    assert wrong == []


def test_no_command_is_left_out():
    assert {one.argv[1] for one in OWN} <= {*READS, *ACTS}


# ---- commands that read are run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with everything that the pages name: an audited fleet of the demo's nodes in racks, logs, scripts."""
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
    smoked = folder / "runs" / "smoke" / "20261120T180000.0" / "group"
    smoked.mkdir(parents=True)
    (smoked / "result.json").write_text(json.dumps(page_smoke.result("gpu001")))
    run_again(folder)
    return folder


def run_again(folder):
    """A second run in the history, as if the first one were from another day."""
    first = (folder / "runs" / "latest").resolve()
    second = first.with_name(EARLIER)
    shutil.copytree(first, second)
    for name in ("run.json", "findings.json"):
        (second / name).write_text((second / name).read_text().replace(first.name, EARLIER))
    done = unhang(folder, "runs", "--add", str(second))
    assert done.returncode == 0, done.stderr


def on_this_fleet(folder, word):
    """A word of a command with the pages' example names replaced by names that exist here."""
    for example, here in (("20260302T031407Z-5bc520", EARLIER), ("gpu[001-016]", "gpu[001-008]"), ("/var/lib/prometheus/node-exporter", str(folder))):
        word = word.replace(example, here)
    return word


def unhang(folder, *argv):
    """A finished `unhang` command in that folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "UNHANG_"))}
    environment = {**kept, "UNHANG_RUNS": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "unhang", *argv], cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def is_here(folder, word):
    """Whether a path in a command was created here; true for every word that is no path."""
    looks = "/" in word or word.endswith((".log", ".json", ".txt"))
    return not looks or "://" in word or (folder / word).exists() or (folder / word).parent.is_dir() or word.startswith("-")


def test_each_command_that_acts_is_run_as_it_stands_on_its_page():
    acting = {one.form for one in (*OWN, *PLAYBOOKS) if one.argv[1] not in READS}
    assert sorted(acting - {*typed_in_tests(), *AUDITS}) == []
    assert sorted({*typed_in_tests()} - {one.form for one in COMMANDS}) == [], "no page has it any more"


READING = sorted({one.argv[1:] for one in OWN if one.argv[1] in READS and one.form not in typed_in_tests()})


@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_what_reads_ends_well_on_an_audited_fleet(place, argv):
    argv = tuple(on_this_fleet(place, word) for word in argv)
    if argv[0] == "policy":  # uses good nodes: the last two have another NCCL
        argv = tuple(word.replace("gpu[001-004]", "gpu[001-002]") for word in argv)
    assert [word for word in argv[1:] if not is_here(place, word)] == [], "what is not made here"
    done = unhang(place, *argv)
    assert done.returncode in (0, 1, 3, 4), done.stdout[-500:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr
