"""`unhang audit` started in an unusual folder, with an unusual limit, or without any host."""

from __future__ import annotations

import json
import os
import pty
import sys

import pytest
from forked_commands import forked
from local_fleet import CLEAN, DEADLINE_S, PROJECT, envelope, run, unhang_argv


def unhang(fleet, *arguments, **environment):
    """A finished `unhang` command."""
    return forked(arguments, fleet.folder, surroundings(fleet, environment))


def started(fleet, *arguments, **environment):
    """The same in a process of its own."""
    return run(unhang_argv(*arguments), surroundings(fleet, environment), fleet.folder)


def surroundings(fleet, more):
    return {**CLEAN, "ANSIBLE_HOME": str(fleet.folder / "home"), **more}


def audit(fleet, *arguments, by=unhang, **more):
    """`unhang audit` with the fleet's own runs folder."""
    return by(fleet, "audit", "--out", fleet.runs, *arguments, **more)


@pytest.fixture
def four(fleet):
    """gpu001 to gpu003 in a group named gpu, so that Ansible reads gpu[001-003] as an index, and
    one more host."""
    for name in ("gpu001", "gpu002", "gpu003", "login"):
        fleet.answering(name, envelope())
    fleet.groups = {"gpu": ["gpu001", "gpu002", "gpu003"]}
    return fleet


def test_slurms_way_of_writing_hosts_picks_those_hosts(four):
    audit(four, "-i", four.inventory, "--limit", "gpu[002-003],login")
    assert sorted(four.nodes()) == ["gpu002", "gpu003", "login"]


def test_a_limit_far_longer_than_a_command_line_is_taken(fleet):
    names = [f"{'x' * 60}{number:04d}" for number in range(1, 801)]
    fleet.answering(names[0], envelope())
    fleet.answering(names[799], envelope())
    audit(fleet, "-i", fleet.inventory, "--limit", f"{'x' * 60}[0001-0800]")
    assert sorted(fleet.nodes()) == [names[0], names[799]]


def test_group_names_and_ansible_patterns_pass(four):
    audit(four, "-i", four.inventory, "--limit", "gpu:!gpu001")
    assert sorted(four.nodes()) == ["gpu002", "gpu003"]


def test_a_misspelt_key_of_the_policy_stands_on_the_first_screen_with_its_suggestion_and_its_file(
    four,
):
    (four.folder / "group_vars").mkdir()
    (four.folder / "group_vars" / "gpu.yml").write_text(
        "unhang_policy: {driver: {verison: 535.154.05}}\n"
    )
    done = audit(four, "-i", four.inventory, COLUMNS="80")
    (line,) = [" ".join(part.split()) for part in done.stdout.split("\n\n") if "verison" in part]
    assert (
        "correct driver.verison in group_vars/gpu.yml: this key is unknown (did you mean version?)"
        in line
    )
    assert "gpu[001-003] (3 nodes): The policy of this node has a fault" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "nowhere.yml"], "--inventory names nowhere.yml, which does not exist"),
        (["-i", "empty.yml"], "empty.yml has no hosts"),
        (
            ["-i", "one.yml", "--limit", "other"],
            "one.yml has no hosts that --host other matches",
        ),
        (
            ["-i", "one.yml", "--limit", "gpu[1-"],
            "'gpu[1-' is not a node set such as gpu[001-016]",
        ),
        (
            ["-i", "one.yml", "--policy", "low.yml"],
            "low.yml:1: driver.version: '535.154.05' is below driver.min",
        ),
        (["-i", "one.yml", "--policy", "none.yml"], "none.yml"),
        (["-i", "one.yml", "--", "--no-such-option"], "unrecognized arguments: --no-such-option"),
        (
            ["-i", "broken.yml"],
            "the inventory broken.yml is YAML that cannot be read at BROKEN:3:1: ",
        ),
        (
            ["-i", "group.yml"],
            (
                "a host is called all, as a group of every inventory: Ansible would audit it alone; rename it"
            ),
        ),
    ],
)
def test_nothing_to_look_at_is_exit_code_2_and_one_line(fleet, arguments, message):
    (fleet.folder / "empty.yml").write_text("all:\n  hosts: {}\n")
    (fleet.folder / "one.yml").write_text("all:\n  hosts: {gpu001: {}}\n")
    (fleet.folder / "low.yml").write_text("driver: {version: 535.154.05, min: 580.65.06}\n")
    (fleet.folder / "broken.yml").write_text("all: [\n  hosts: {\n")
    (fleet.folder / "group.yml").write_text(
        "training:\n  hosts: {gpu001: {}, all: {}, gpu002: {}}\n"
    )
    done = audit(fleet, *arguments)
    assert done.returncode == 2
    assert message.replace("BROKEN", str(fleet.folder / "broken.yml")) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    assert not fleet.runs.exists()


def test_findings_of_an_audit_by_another_policy_are_the_record_of_its_run(fleet):
    fleet.answering("gpu001", envelope())
    (fleet.folder / "own.yml").write_text("gpu: {count: 9}\n")
    audit(fleet, "-i", fleet.inventory, "--policy", "own.yml", "--severity", "critical", "-q")
    found = json.loads((fleet.runs / "latest" / "findings.json").read_text())
    assert found["judged_by"]["policy"] == "own.yml"
    assert "filter" not in found
    assert {entry.name for entry in (fleet.runs / "latest").iterdir()} == {
        "run.json",
        "made-here",
        "nodes",
        "findings.json",
        "parts.json",
        "report.html",
    }


def test_rules_are_checked_before_a_node_is_asked(fleet):
    fleet.answering("gpu001", envelope())
    (fleet.folder / "own").mkdir()
    (fleet.folder / "own" / "rules.yml").write_text("rules: [\n")
    done = audit(fleet, "-i", fleet.inventory, "--rules", "own")
    assert done.returncode == 2
    assert "rules.yml:2: YAML" in done.stderr
    assert "no node was asked" in done.stderr
    assert not fleet.runs.exists()


def test_a_world_writable_folder_does_not_unplug_the_project(four):
    four.folder.chmod(0o777)
    (four.folder / "ansible.cfg").write_text("[defaults]\ninject_facts_as_vars = True\n")
    (four.folder / "unhang.py").write_text("raise SystemExit('planted')\n")
    audit(four, "-i", "hosts.yml" if four.inventory else "", "--limit", "login", by=started)
    assert four.nodes()["login"]["status"] == "ok"


def test_a_callers_own_ansible_settings_do_not_unplug_the_project_and_what_is_behind_the_dashes_goes_to_ansible(
    four,
):
    planted = {
        "ANSIBLE_LIBRARY": "/nowhere",
        "ANSIBLE_CALLBACKS_ENABLED": "timer",
        "ANSIBLE_INJECT_FACT_VARS": "True",
        "PYTHONPATH": "/nowhere",
    }
    behind = ("--", "-e", '{"unhang_policy": {"driver": {"version": "1"}}}')
    audit(four, "-i", four.inventory, "--limit", "login", *behind, by=started, **planted)
    assert (four.nodes()["login"]["status"], four.nodes()["login"]["policy"]) == (
        "ok",
        {"driver": {"version": "1"}},
    )


HARMFUL = {
    "ANSIBLE_ENABLE_TASK_DEBUGGER": "True",
    "ANSIBLE_STRATEGY": "debug",
    "ANSIBLE_RUN_TAGS": "other",
    "ANSIBLE_SKIP_TAGS": "all",
    "ANSIBLE_INVENTORY_ENABLED": "ini",
}


@pytest.mark.parametrize("callback", ["ansible.builtin.yaml", "json", "debug"])
def test_no_setting_of_the_caller_keeps_a_node_from_being_read_and_json_is_all_that_is_printed(
    four, callback
):
    """With each of these settings an audit once asked for input, read no node, or lost the reason
    for a failure."""
    planted = {"ANSIBLE_STDOUT_CALLBACK": callback, **HARMFUL}
    done = audit(four, "-i", four.inventory, "--format", "json", **planted)
    assert {node["status"] for node in four.nodes().values()} == {"ok"}, done.stderr
    printed = json.loads(done.stdout)  # one object on standard output and nothing else
    assert (printed["schema"], printed["nodes"]["ok"]) == ("unhang/findings/1", 4)
    assert done.returncode in (0, 1)
    (line,) = [line for line in done.stderr.splitlines() if "not taken over" in line]
    assert sorted(line.partition("under them: ")[2].split(", ")) == sorted(planted)


def test_unhang_runs_names_where_an_audit_writes_and_judge_reads(four, tmp_path):
    elsewhere = tmp_path / "other disk"
    done = unhang(
        four, "audit", "-i", four.inventory, "--limit", "login", UNHANG_RUNS=str(elsewhere)
    )
    (run_folder,) = elsewhere.glob("2*")
    assert {path.name for path in run_folder.iterdir()} == {
        "run.json",
        "made-here",
        "nodes",
        "findings.json",
        "parts.json",
        "report.html",
    }, done.stderr
    assert not (four.folder / "runs").exists()
    judged = unhang(four, "judge", "latest", "--format", "json", UNHANG_RUNS=str(elsewhere))
    assert json.loads(judged.stdout)["run"]["id"] == run_folder.name


def test_the_exit_code_is_the_judges(four):
    four.answering("rubbish", "no JSON")
    clean = audit(four, "-i", four.inventory, "--limit", "login", "--fail-on", "critical")
    assert clean.returncode == 0, clean.stderr
    broken = audit(four, "-i", four.inventory, "--limit", "rubbish,login")
    assert broken.returncode == 1, broken.stderr
    blind = audit(four, "-i", four.inventory, "--limit", "rubbish")
    assert blind.returncode == 2, blind.stderr
    assert "no node was read" in blind.stderr


def test_a_bar_with_counts_and_a_clock_shows_on_a_terminal(four):
    command = [
        sys.executable,
        "-P",
        "-c",
        SPAWN,
        str(PROJECT / "tools"),
        str(PROJECT / "module_utils"),
        str(four.runs),
        str(four.inventory),
    ]
    screen = []

    def read(descriptor):
        shown = os.read(descriptor, 65536)
        screen.append(shown)
        return shown

    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(CLEAN)
    try:
        status = pty.spawn(command, read)
    finally:
        os.environ.clear()
        os.environ.update(before)
    shown = b"".join(screen).decode(errors="replace")
    assert os.waitstatus_to_exitcode(status) in (0, 1, 2)
    assert "the nodes are listed" in shown
    last = shown[shown.rindex("4 of 4 nodes") :].splitlines()[0]
    assert "0 failed, 0 unreachable 0:00:" in last
    assert "waited for" not in shown[shown.rindex("4 of 4 nodes") :]


SPAWN = """
import signal, sys
signal.alarm(DEADLINE)
sys.path[:0] = sys.argv[1:3]
from unhang.cli import main
sys.exit(main(["audit", "--out", sys.argv[3], "-i", sys.argv[4]]))
""".replace("DEADLINE", str(DEADLINE_S))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-command"], "there are inspect"),
        (["audit", "--no-such-option"], "unrecognized arguments"),
        (["reprot"], "did you mean report?"),
        (["report", "--formt", "json"], "did you mean --format?"),
    ],
)
def test_a_mistyped_command_is_reported_and_is_exit_code_2(fleet, arguments, message):
    done = unhang(fleet, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_traceback(fleet):
    start = f'import sys; sys.path[:0] = ["{PROJECT}/tools"]; from unhang.cli import main; main()'
    done = run(["sh", "-c", f"'{sys.executable}' -P -c '{start}' | true"], CLEAN, "/")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["-i", "hosts.yml", "--limit", "good", "--fail-on", "critical"],
            0,
            "exit code 0 of unhang audit (make: 0), nothing found",
        ),
        (["-i", "hosts.yml"], 0, "exit code 1 of unhang audit (make: 0), there are findings"),
        (
            ["-i", "hosts.yml", "--limit", "bad"],
            0,
            "exit code 2 of unhang audit (make: 0), the audit failed",
        ),
        (["-i", "nowhere.yml"], 2, "exit code 2 of unhang audit (make: 2), the audit failed"),
    ],
)
def test_make_ends_well_once_a_run_was_written_and_says_both_codes(fleet, arguments, code, message):
    fleet.answering("good", envelope())
    fleet.answering("bad", "rubbish")
    assert fleet.inventory.name == "hosts.yml"
    command = [
        "sh",
        PROJECT / "tools" / "setup" / "audit.sh",
        sys.executable,
        "--out",
        "runs",
        *arguments,
    ]
    done = run(
        command,
        {
            **CLEAN,
            "PYTHONPATH": f"{PROJECT}/tools:{PROJECT}/module_utils",
            "ANSIBLE_HOME": str(fleet.folder / "home"),
        },
        fleet.folder,
    )
    assert done.returncode == code, done.stderr
    assert message in done.stderr


def test_make_finds_the_run_where_unhang_runs_names_a_folder_below_home(fleet):
    fleet.answering("bad", "rubbish")
    settings = {
        "ANSIBLE_HOME": str(fleet.folder / "home"),
        "HOME": str(fleet.folder),
        "UNHANG_RUNS": "~/mine",
    }
    command = [
        "sh",
        PROJECT / "tools" / "setup" / "audit.sh",
        sys.executable,
        "-i",
        str(fleet.inventory),
        "--limit",
        "bad",
    ]
    done = run(
        command,
        {**CLEAN, "PYTHONPATH": f"{PROJECT}/tools:{PROJECT}/module_utils", **settings},
        fleet.folder,
    )
    assert done.returncode == 0, done.stderr
    assert (fleet.folder / "mine" / "latest" / "findings.json").is_file()
