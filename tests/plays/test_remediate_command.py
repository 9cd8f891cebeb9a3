"""`unhang remediate` as a complete program, over nodes that never answer: what it starts and
prints, and its exit code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.plugins.loader import callback_loader
from controller_process import under_way
from documented_command import as_typed
from fakes.role_play import DEADLINE_S, PROJECT, answer_of, environment
from rollout_plans import HOSTS, POLICY, Recorded, planned

from unhang.act.commands.remediate import settle_controller
from unhang.act.plan.plan_document import PersonNeeded, Refused, Wave, read_plan, write_plan
from unhang.act.rollout.conductor import begin
from unhang.act.rollout.for_ansible import conductor_of
from unhang.act.rollout.journal import read_journal
from unhang.core.ansible.controllers import born, is_over, machine
from unhang.core.run.own_runs import mark_as_own

BY_SIGNAL = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])


@pytest.fixture
def run_folder(tmp_path):
    """A plan over three nodes that are off."""
    (tmp_path / "hosts").write_text(
        "[rack1]\n"
        + "".join(
            f"{host} ansible_host=192.0.2.{at} ansible_ssh_extra_args='-o ConnectTimeout=1'\n"
            for at, host in enumerate(HOSTS, 1)
        )
    )
    folder = tmp_path / "runs" / "20261120T070000Z-0123456789"
    (folder / "nodes").mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps(
            {
                "schema": "unhang/run/1",
                "id": folder.name,
                "hosts": list(HOSTS),
                "inventory": [str(tmp_path / "hosts")],
            }
        )
    )
    mark_as_own(folder)
    planned(folder)
    return folder


def remediate(folder, *argv):
    return typed(folder, ["unhang", "remediate", str(folder), "--no-smoke", "--soak", "0", *argv])


def typed(folder, argv):
    """A finished command; without a run it uses the newest one."""
    return answer_of([sys.executable, "-P", "-m", *argv], surroundings(folder))


def surroundings(folder):
    return environment(folder.parent) | {
        "UNHANG_RUNS": str(folder.parent),
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }


def test_the_canary_that_nobody_answers_for_stops_the_rollout_and_the_command_says_so(run_folder):
    (run_folder.parent / "latest").symlink_to(run_folder.name)
    done = typed(run_folder, as_typed("unhang remediate --apply"))
    assert done.returncode == 1
    assert (
        "unhang: a: deferred: the journal has no change of it (lock: a: it did not answer when it was read again)"
        in done.stderr
    )
    assert "DEFERRED: 1 node, the journal has no change of it" in done.stdout
    assert "did not answer when it was read again" in " ".join(done.stdout.split())
    assert "TO COME: 2 nodes, not touched yet" in done.stdout
    assert [entry.host for entry in read_journal(run_folder).entries if entry.host] == ["a"]
    status = typed(run_folder, as_typed("unhang remediate --status"))
    assert (status.returncode, status.stdout) == (1, done.stdout)
    # a reading of the plan's nodes alone makes no news, and no audit is compared with it
    ended = typed(run_folder, as_typed("unhang remediate --end RUN", {"RUN": run_folder}))
    assert ended.returncode == 1
    assert re.match(r"rollout of run \S+: ended by \S+@\S+, for good\n", ended.stdout)
    assert "TO COME: 2 nodes, not touched yet" in ended.stdout


def test_the_preview_writes_no_journal_and_names_the_nodes_that_were_not_read(run_folder):
    (run_folder.parent / "latest").symlink_to(run_folder.name)
    done = typed(run_folder, as_typed("unhang remediate"))
    assert done.returncode == 2
    assert "the node not possible is not proved healthy: unreachable" in " ".join(
        done.stdout.split()
    )
    assert "unhang: a: is not proved healthy: unreachable" in done.stderr
    assert "TASK [" not in done.stdout + done.stderr
    assert not (run_folder / "journal.jsonl").exists()
    # a run over only the plan's nodes does not replace an audit
    assert (run_folder.parent / "latest").readlink().name == run_folder.name


def test_an_edit_of_the_inventorys_policy_is_reported_once_and_the_plans_own_policy_counts(
    run_folder,
):
    for host in HOSTS:
        audited = {"schema": "unhang/node/1", "host": host, "groups": [], "policy": {}}
        audited |= {"status": "unreachable", "message": "", "facts": None}
        (run_folder / "nodes" / f"{host}.json").write_text(json.dumps(audited))
    edit = {"all": {"hosts": {"a": {"unhang_policy": {"kernel": {"version": "9.9.9"}}}}}}
    (run_folder.parent.parent / "edit.json").write_text(json.dumps(edit))
    inventories = ("-i", str(run_folder.parent.parent / "hosts"))
    inventories += ("-i", str(run_folder.parent.parent / "edit.json"))
    reported = "unhang_policy of a was edited since the plan, which keeps to its own"
    for command in ((), ("--apply",)):
        done = remediate(run_folder, *inventories, *command)
        assert " ".join(done.stdout.split()).count(reported) == 1
        [read] = [
            path
            for path in run_folder.parent.glob("*/nodes/a.json")
            if path.parents[1] != run_folder
        ]
        assert json.loads(read.read_text())["policy"] == POLICY
        shutil.rmtree(read.parents[1])


FAULTS = [
    (
        "plan.json",
        '"max_unavailable": 2',
        '"max_unavailable": 3',
        "was edited since `unhang plan` wrote it",
    ),
    (
        "plan.json",
        "unhang/plan/1",
        "unhang/plan/2",
        "is a plan of schema unhang/plan/2, not of unhang/plan/1",
    ),
    (
        "hosts",
        "c ansible_host",
        "d ansible_host",
        "names c, which the inventory does not have",
    ),
    (
        "hosts",
        "[rack1]",
        "[rack2]",
        "the inventory lacks groups of the plan's limits: rack1",
    ),
]


@pytest.mark.parametrize(("file", "old", "new", "reason"), FAULTS)
def test_a_plan_that_does_not_hold_is_refused_in_one_line_and_nothing_is_written(
    run_folder, file, old, new, reason
):
    path = run_folder / file if file == "plan.json" else run_folder.parent.parent / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    done = remediate(run_folder, "--apply")
    assert (done.returncode, done.stdout) == (2, "")
    assert sum(reason in line for line in done.stderr.splitlines()) == 1
    assert not {"Origin:", "TASK", "Traceback"} & set(done.stderr.split())
    assert not (run_folder / "journal.jsonl").exists()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [(old, new, reason) for file, old, new, reason in FAULTS if file == "hosts"],
)
def test_a_preview_refuses_what_the_inventory_does_not_have_in_the_line_that_the_rollout_does(
    run_folder, old, new, reason
):
    hosts = run_folder.parent.parent / "hosts"
    hosts.write_text(hosts.read_text().replace(old, new))
    done = remediate(run_folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert [reason in line for line in done.stderr.splitlines()].count(True) == 1
    assert (
        done.stderr.splitlines()[-1]
        == "unhang: the preview did not begin; ansible-playbook ended with 2"
    )


def test_a_plan_without_waves_says_what_a_person_has_to_do(run_folder):
    plan = read_plan(run_folder)
    hosts = [
        replace(one, remedies=(), reboots=(), person=(PersonNeeded("a-rule", "look at the riser"),))
        for one in plan.hosts
    ]
    hosts[0] = replace(hosts[0], refused=(Refused("role kernel: no boot loader"),))
    write_plan(run_folder, replace(plan, waves=(), hosts=tuple(hosts)))
    done = remediate(run_folder)
    assert (done.returncode, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith("unhang: ") and first.endswith(
        "plan.json has no waves: there is nothing that a role repairs"
    )
    assert rest == ["  a: role kernel: no boot loader", "  a,b,c: look at the riser (a-rule)"]


def test_the_playbook_alone_refuses_a_plan_that_was_edited_before_it_asks_a_node(run_folder):
    plan, folder = run_folder / "plan.json", run_folder.parent.parent
    plan.write_text(plan.read_text().replace('"max_unavailable": 2', '"max_unavailable": 3'))
    command = [
        "ansible-playbook",
        "playbooks/remediate.yml",
        "-i",
        str(folder / "hosts"),
        "-e",
        f"unhang_plan={run_folder}",
    ]
    given = environment(folder) | {"UNHANG_RUN_DIR": str(folder / "read")}
    done = answer_of(command, given)
    assert done.returncode == 2
    assert "was edited since `unhang plan` wrote it" in done.stdout
    assert "TASK [Check the plan against the inventory]" in done.stdout
    assert "PLAY [Audit" not in done.stdout
    assert not (folder / "read" / "nodes").exists()


def test_a_wave_in_which_every_node_fails_ends_no_rollout_that_may_go_on(run_folder):
    plan = replace(
        planned(run_folder),
        waves=(Wave("canary 1", ("a",)), Wave("wave 1", ("b",)), Wave("wave 2", ("c",))),
    )
    write_plan(run_folder, plan)
    first = Recorded(run_folder, plan)
    first.begin()
    first.through("a")
    first.end()
    done = remediate(run_folder, "--apply", "--max-failed", "2")
    assert done.returncode == 1
    assert [
        (entry.host, entry.step, entry.status)
        for entry in read_journal(run_folder).entries
        if entry.host in ("b", "c")
    ] == [
        ("b", "lock", "failed"),
        ("c", "lock", "failed"),
    ]


@BY_SIGNAL
def test_a_rollout_that_is_stopped_in_a_task_ends_ansible_and_names_the_command(
    run_folder, tmp_path, number
):
    """The interpreter of the nodes never answers."""
    python, asked = tmp_path / "python", tmp_path / "asked"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\n'
        f"cat >/dev/null; touch {asked}; exec sleep {DEADLINE_S}\n"
    )
    python.chmod(0o755)
    local = f"ansible_connection=local ansible_python_interpreter={python}"
    (tmp_path / "hosts").write_text("[rack1]\n" + "".join(f"{host} {local}\n" for host in HOSTS))
    with stopped(run_folder, number, asked.exists, "--soak", "0") as output:
        assert (
            "unhang: it was stopped by hand before a node was touched; go on with: unhang" in output
        )
        assert processes_of(tmp_path) == []


@BY_SIGNAL
def test_a_rollout_that_is_stopped_in_a_soak_names_the_command(run_folder, number):
    recorded = Recorded(run_folder, planned(run_folder))
    recorded.begin()
    recorded.through("a")
    recorded.end()
    log = run_folder.parent / "log"
    with stopped(
        run_folder, number, lambda: "nothing is done until then" in log.read_text(), "--soak", "1h"
    ) as output:
        assert (
            "unhang: it was stopped by hand while released nodes soak; go on with: unhang" in output
        )
        assert output.count(" soaks until ") == 1


def test_beside_another_controller_nothing_is_done_until_it_has_ended(run_folder):
    with under_way(["sleep", "600"], None, None) as other:
        process = {**machine(), "pid": other.pid, "born": born(other.pid)}
        begin(run_folder, HOSTS, {"by": "ops@ctl", "controller": process}, is_over, "")
        done = remediate(run_folder, "--apply")
        assert done.returncode == 3
        assert f"ops@ctl (process {other.pid}), who began " in done.stderr
    settle_controller(run_folder, None)
    assert [one.status for one in read_journal(run_folder).entries] == ["begun", "done"]


@contextlib.contextmanager
def stopped(run_folder, number, is_due, *argv):
    """What the command printed before it ended by this signal, which it gets once it is due."""
    path = run_folder.parent / "log"
    command = ["unhang", "remediate", str(run_folder), "--apply", "--no-smoke", *argv]
    with (
        path.open("w") as log,
        under_way([sys.executable, "-P", "-m", *command], surroundings(run_folder), log) as process,
    ):
        until = time.monotonic() + DEADLINE_S
        while not is_due():
            assert process.poll() is None and time.monotonic() < until, path.read_text()
            time.sleep(0.05)
        process.send_signal(number)
        process.wait(DEADLINE_S)
        assert process.returncode == 3
        yield path.read_text()


def processes_of(folder):
    """Command lines of the processes whose environment names the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if str(folder).encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes())
    return found


def test_the_process_that_forks_the_workers_follows_the_journal_with_each_step(run_folder):
    recorded = Recorded(run_folder, planned(run_folder))
    recorded.begin()
    callback_loader.add_directory(str(PROJECT / "plugins" / "callback"))
    callback = callback_loader.get("unhang_rollout", class_only=True)()
    rollout = {
        "folder": str(run_folder),
        "epoch": recorded.epoch,
        "read": "",
        "run": recorded.plan.run.id,
    }
    callback.v2_runner_on_ok(
        SimpleNamespace(
            task=SimpleNamespace(action="unhang.ops.rollout_begin"), result={"rollout": rollout}
        )
    )
    journal, written = conductor_of(rollout).followed.journal, run_folder / "journal.jsonl"
    assert journal.read_bytes == written.stat().st_size
    recorded.through("a", until="wait")
    callback.v2_runner_on_ok(
        SimpleNamespace(task=SimpleNamespace(action="rollout_step"), result={"go": True})
    )
    assert conductor_of(rollout).followed.journal is journal
    assert journal.read_bytes == written.stat().st_size
