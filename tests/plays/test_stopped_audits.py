"""An audit that is stopped: its results stay, the command to continue is printed, and no process is
left behind."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from local_fleet import CLEAN, DEADLINE_S, envelope, run, unhang_argv

pytestmark = pytest.mark.timeout(600)
GO_ON = "judge the nodes that were read with: "


HANGS = f'[ "$1" = -c ] && exec {sys.executable} "$@"\ncat >/dev/null\ntouch ASKED\nsleep 5000\n'


@contextlib.contextmanager
def _running(fleet, inventory, **streams):
    """An audit in a session of its own; it and what it started are ended in any case."""
    command = unhang_argv("audit", "--out", fleet.runs, "-i", inventory)
    (fleet.folder / "temp").mkdir()
    environment = {
        **CLEAN,
        "ANSIBLE_HOME": str(fleet.folder / "home"),
        "TMPDIR": str(fleet.folder / "temp"),
    }
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    arguments = list(map(str, command))
    with subprocess.Popen(
        arguments, env=environment, cwd=fleet.folder, text=True, stdin=subprocess.DEVNULL,
        start_new_session=True, **streams
    ) as audit:  # fmt: skip
        try:
            yield audit
        finally:
            audit.kill()
            for process in _processes(fleet.folder):
                os.kill(process, signal.SIGKILL)


@pytest.fixture
def hung(fleet):
    """A running audit: one node has answered, the other never will."""
    fleet.answering("a-good", envelope())
    fleet.interpreter("hangs", HANGS.replace("ASKED", f"{fleet.folder}/asked"))
    with _running(fleet, fleet.inventory) as audit:
        _until(
            lambda: (
                (fleet.folder / "asked").exists() and list(fleet.runs.glob("*/nodes/a-good.json"))
            ),
            "both nodes were asked",
        )
        yield fleet, audit


def _until(holds, what):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.1)


def _processes(folder):
    """Processes of this audit, recognised by the folder in their command line or environment."""
    mark = str(folder).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (
                entry.name != str(os.getpid())
                and mark in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            ):
                yield int(entry.name)
        except OSError:
            continue


def _ended(fleet, audit):
    """(standard error, node statuses) of the audit, once all its processes have ended."""
    out, output = audit.communicate(timeout=DEADLINE_S)
    assert out == ""
    assert audit.returncode == 2, output
    assert "Traceback" not in output
    assert list(_processes(fleet.folder)) == []
    return output


def _goes_on(fleet, output):
    """The printed command judges the results so far."""
    (line,) = [line for line in output.splitlines() if GO_ON in line]
    argv = shlex.split(line.partition(GO_ON)[2])
    run_folder = next(iter(fleet.runs.glob("2*")))
    assert argv[-2] == "judge"
    assert (fleet.folder / argv[-1]).resolve() == run_folder.resolve()
    command = unhang_argv("judge", run_folder, "--format", "json")
    judged = json.loads(run(command, CLEAN, fleet.folder).stdout)
    assert judged["host_count"] == 2
    assert judged["nodes"]["ok"] == 1


def _ctrl_c(audit):
    os.killpg(audit.pid, signal.SIGINT)


def _ctrl_c_twice(audit):
    """The second one comes as soon as Ansible, which stood still for the first, goes on, so that it
    cannot have ended before."""
    ansible = _ansible(audit)
    os.kill(ansible, signal.SIGSTOP)
    os.killpg(audit.pid, signal.SIGINT)
    os.kill(ansible, signal.SIGCONT)
    os.killpg(audit.pid, signal.SIGINT)


def _ctrl_c_until_it_has_ended(audit):
    """As somebody who holds the keys; Ansible gets the first alone, because it does not close the
    run if it is interrupted again."""
    os.killpg(audit.pid, signal.SIGINT)
    while audit.poll() is None:
        os.kill(audit.pid, signal.SIGINT)
        time.sleep(0.002)


def _terminate_until_it_has_ended(audit):
    while audit.poll() is None:
        os.kill(audit.pid, signal.SIGTERM)
        time.sleep(0.002)


def _ansible(audit):
    (ansible,) = map(int, Path(f"/proc/{audit.pid}/task/{audit.pid}/children").read_text().split())
    assert b"ansible-playbook" in Path(f"/proc/{ansible}/cmdline").read_bytes()
    return ansible


def _terminate(audit):
    """As a batch system or `kill` does: only unhang gets the signal, and it must end Ansible."""
    os.kill(audit.pid, signal.SIGTERM)


def _close_the_terminal(audit):
    """Everything in the terminal gets the signal, Ansible and its workers too."""
    os.killpg(audit.pid, signal.SIGHUP)


@pytest.mark.parametrize(
    "stop",
    [
        _ctrl_c,
        _ctrl_c_twice,
        _ctrl_c_until_it_has_ended,
        _terminate,
        _terminate_until_it_has_ended,
        _close_the_terminal,
    ],
)
def test_who_stops_an_audit_is_told_how_to_go_on_and_nothing_is_left(hung, stop):
    fleet, audit = hung
    stop(audit)
    errors = _ended(fleet, audit)
    assert "it was stopped by hand" in errors.splitlines()[-1]
    _is_closed(fleet)
    _goes_on(fleet, errors)


def test_an_audit_says_at_once_that_it_starts_and_a_ctrl_c_there_says_that_nothing_was_read(fleet):
    """The inventory is a program that never answers, so that no node is asked as long as the test
    looks."""
    inventory = fleet.folder / "endless"
    inventory.write_text(f"#!/bin/sh\ntouch {fleet.folder}/asked\nexec sleep 5000\n")
    inventory.chmod(0o755)
    screen, terminal = pty.openpty()
    with (
        os.fdopen(screen, "rb", buffering=0) as screen,
        os.fdopen(terminal, "wb") as terminal,
        _running(fleet, inventory, stdout=terminal, stderr=terminal) as audit,
    ):
        _until((fleet.folder / "asked").exists, "the inventory was asked")
        assert screen.read(65536).startswith(b"the nodes are listed ")
        _ctrl_c(audit)
        assert audit.wait(timeout=DEADLINE_S) == 2
        assert (
            screen.read(65536).splitlines()[-1]
            == b"unhang: it was stopped by hand, before a node was asked; nothing was read"
        )
    assert not fleet.runs.exists()


@pytest.mark.parametrize("stop", [_ctrl_c, _terminate])
def test_an_audit_that_is_stopped_before_a_node_has_answered_says_that_nothing_was_read(
    fleet, stop
):
    fleet.interpreter("hangs", HANGS.replace("ASKED", f"{fleet.folder}/asked"))
    with _running(fleet, fleet.inventory) as audit:
        _until((fleet.folder / "asked").exists, "the node was asked")
        stop(audit)
        errors = _ended(fleet, audit)
    assert errors.splitlines()[-1] == "unhang: it was stopped by hand; nothing was read"
    assert GO_ON not in errors and all(line.startswith("unhang: ") for line in errors.splitlines())


def test_an_ansible_that_is_killed_is_said_in_one_line_and_its_workers_end_with_it(hung):
    fleet, audit = hung
    os.kill(_ansible(audit), signal.SIGKILL)
    output = _ended(fleet, audit)
    (line,) = output.splitlines()
    assert line.startswith(
        "unhang: ansible-playbook was ended by SIGKILL; judge the nodes that were read with: "
    )
    _is_closed(fleet)
    assert os.readlink(fleet.runs / "latest") == next(fleet.runs.glob("2*")).name
    _goes_on(fleet, output)


def test_an_audit_that_is_killed_takes_its_ansible_with_it_which_closes_the_run(hung):
    fleet, audit = hung
    assert any(
        b"ansible-playbook" in _command_line(process) for process in _processes(fleet.folder)
    )
    os.kill(audit.pid, signal.SIGKILL)
    audit.wait()
    _until(
        lambda: (
            not any(b"ansible" in _command_line(process) for process in _processes(fleet.folder))
        ),
        "Ansible and its workers have ended",
    )
    _is_closed(fleet)


PLAYS = """
import os, signal, sys
from unhang.core.ansible.play_process import play
signal.signal(signal.SIGINT, getattr(signal, sys.argv[1]))
play([sys.executable, "-c", sys.argv[2], sys.argv[3]], dict(os.environ), False)
"""
CLOSES = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
try:
    (folder / "begun").touch()
    time.sleep(5000)
except KeyboardInterrupt:
    (folder / "closed").touch()
"""


@pytest.mark.parametrize("on_ctrl_c", ["default_int_handler", "SIG_IGN"])
def test_a_play_is_asked_to_close_when_its_parent_is_killed_also_where_the_parent_ignores_ctrl_c(
    tmp_path, on_ctrl_c
):
    with subprocess.Popen(
        [sys.executable, "-c", PLAYS, on_ctrl_c, CLOSES, str(tmp_path)]
    ) as parent:
        _until((tmp_path / "begun").exists, "the play has begun")
        parent.kill()
    _until((tmp_path / "closed").exists, "the play was closed")


def _command_line(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_closed(fleet):
    """Every node has its file, the run records that it did not finish, and no temporary file is
    left."""
    nodes = {
        node["host"]: (node["status"], node["message"])
        for node in map(_read, fleet.runs.glob("2*/nodes/*.json"))
    }
    assert nodes == {
        "a-good": ("ok", None),
        "hangs": ("failed", "the play ended before this node answered"),
    }
    assert fleet.run_document()["finished"] is None
    assert list((fleet.folder / "temp").iterdir()) == []


def _read(path):
    return json.loads(path.read_text())
