"""Nodes that are off, refuse, hang, have no Python or one that is too old: each becomes a finding,
and the other nodes are audited."""

from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import subprocess

import audits
import pytest
from four_nodes import NAMES

OLD_PYTHON = """import sys
sys.version_info = (3, 7, 3, "final", 0)
sys.version = "3.7.3 (default)"
sys.hexversion = 0x030703F0
"""
# read at every start of Debian's Python, but not with -I -S
SITECUSTOMIZE = "/etc/python3.11/sitecustomize.py"
# Accepts connections instead of sshd and sends nothing, like an sshd on a machine without free
# memory.
MUTE = (
    "systemd-run --quiet --unit=mute python3 -c 'import socket, time; s ="
    ' socket.create_server(("", 22), backlog=64); time.sleep(100000)\''
)


def test_a_node_without_power_is_unreachable_and_its_neighbours_stand(fleet):
    fleet.power_off("gpu004")
    audit = fleet.audit()
    assert audit.node("gpu004")["status"] == "unreachable"
    assert audit.node("gpu004")["facts"] is None
    assert "node-unreachable" in audit.rules("gpu004")
    assert [audit.node(name)["status"] for name in NAMES[:3]] == ["ok"] * 3


def test_a_node_whose_sshd_is_stopped_or_mute_is_a_finding(fleet):
    fleet.shell("gpu002", "systemctl stop ssh", undo="systemctl start ssh")
    fleet.shell(
        "gpu003", "systemctl stop ssh && " + MUTE, undo="systemctl stop mute; systemctl start ssh"
    )
    audit = fleet.audit(variables={"unhang_node_timeout_s": 20})
    assert audit.node("gpu002")["status"] == "unreachable"
    assert "refused" in audit.node("gpu002")["message"]
    assert audit.node("gpu003")["status"] in ("unreachable", "timeout")
    assert {"node-unreachable", "node-timeout"} & set(audit.rules("gpu003"))
    assert [audit.node(name)["status"] for name in ("gpu001", "gpu004")] == ["ok", "ok"]


def test_a_changed_host_key_is_unreachable_and_never_trusted(fleet):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", fleet.work / "other"], check=True
    )
    fleet.undo.callback(fleet.shell, "gpu001", "systemctl restart ssh")
    fleet.plant(
        "gpu001", "/etc/ssh/ssh_host_ed25519_key", (fleet.work / "other").read_bytes(), mode=0o600
    )
    fleet.shell("gpu001", "systemctl restart ssh")
    audit = fleet.audit(groups={"training": ["gpu001", "gpu002"]})
    assert audit.node("gpu001")["status"] == "unreachable"
    assert "host key" in audit.node("gpu001")["message"].lower()
    assert audit.node("gpu002")["status"] == "ok"


def test_a_node_without_python_is_told_what_to_install(fleet):
    fleet.shell(
        "gpu001",
        "mv /usr/bin/python3.11 /usr/bin/python3.11.away",
        undo="mv /usr/bin/python3.11.away /usr/bin/python3.11",
    )
    audit = fleet.audit(groups={"training": ["gpu001", "gpu002"]})
    assert audit.node("gpu001")["status"] == "failed"
    assert "install python3" in audit.node("gpu001")["message"]
    assert "node-failed" in audit.rules("gpu001")
    assert audit.node("gpu002")["status"] == "ok"


def test_a_node_with_too_old_a_python_is_read_by_the_one_file_collector(fleet):
    fleet.plant("gpu001", SITECUSTOMIZE, OLD_PYTHON)
    audit = fleet.audit(groups={"training": ["gpu001", "gpu002"]})
    node = audit.node("gpu001")
    assert node["status"] == "python_too_old", node["message"]
    assert "3.7" in node["message"]
    assert node["facts"]["collector"]["collected_via"] == "file"
    assert node["facts"]["sections"]["gpus"]["count"] == 8
    assert "node-python-too-old" in audit.rules("gpu001")


ESCAPES = "\x1b]0;owned\x07\x1b[2J"
HIJACK = {
    "changed": False,
    "ansible_facts": {"inventory_hostname": "gpu004", "group_names": ["production"]},
    "node_facts": "{}",
}
RUBBISH = {
    # Seven times the limit of an answer; Ansible copies everything that it has read for each
    # further piece, so more takes a busy machine minutes.
    "thirty megabytes": "head -c 30000000 /dev/zero | tr '\\0' x",
    "truncated": 'printf \'{"changed": false, "node_facts": "{\'',
    "facts for the controller": "printf '%s' '" + json.dumps(HIJACK) + "'",
    "escapes": "printf '%s' '" + ESCAPES + '{{ lookup("pipe", "touch /tmp/owned") }}\'',
}


@pytest.fixture(scope="module")
def rubbish(shared_fleet):
    """One audit of four nodes whose Python prints something other than the module's answer."""
    for name, command in zip(NAMES, RUBBISH.values(), strict=True):
        # When asked for its version it reports a supported one; when given a module it prints the
        # rubbish.
        script = (
            '#!/bin/sh\n[ "$1" = -c ] && exec /usr/bin/python3.11 "$@"\ncat'
            f" >/dev/null\n{command}\n"
        )
        shared_fleet.plant(name, "/usr/local/bin/python-of-this-node", script, mode=0o755)
    return shared_fleet.audit(
        variables={"ansible_python_interpreter": "/usr/local/bin/python-of-this-node"}
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_rubbish_answer_is_invalid_and_kept_beside_the_record(rubbish, name):
    assert rubbish.node(name)["status"] == "invalid", rubbish.node(name)["message"]
    assert rubbish.node(name)["facts"] is None
    assert "node-answer-invalid" in rubbish.rules(name)
    assert (rubbish.folder / "nodes" / f"{name}.raw").stat().st_size <= 4 * 1024 * 1024


def test_rubbish_reaches_neither_the_terminal_nor_names(rubbish):
    assert "\x1b" not in rubbish.stdout + rubbish.stderr
    assert {path.name.split(".")[0] for path in (rubbish.folder / "nodes").iterdir()} == set(NAMES)
    assert not pathlib.Path("/tmp/owned").exists()


def test_a_controller_that_is_killed_leaves_what_was_collected(fleet):
    marker = fleet.work / "run"
    fleet.shell(
        "gpu004", "systemctl stop ssh && " + MUTE, undo="systemctl stop mute; systemctl start ssh"
    )
    inventory = fleet.work / "hosts.json"
    inventory.write_text(audits.inventory_of(fleet.bed, {"training": list(NAMES)}))
    environment = {**audits.environment_of(fleet.bed, fleet.work), "UNHANG_NEW_RUN": str(marker)}
    command = fleet.bed.inside(audits.playbook_command(inventory), audits.PROJECT)
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as play:
        audits.wait_until(
            lambda: len(list((marker / "nodes").glob("*.json"))) == 3, "three nodes are recorded"
        )
        (controller,) = (
            pathlib.Path(f"/proc/{play.pid}/task/{play.pid}/children").read_text().split()
        )
        descriptor = os.pidfd_open(int(controller))
        os.kill(int(controller), signal.SIGKILL)
        assert select.select([descriptor], [], [], 60)[0]
        os.close(descriptor)
    run = json.loads((marker / "run.json").read_text())
    assert run["finished"] is None
    assert sorted(run["hosts"]) == list(NAMES)
    for name in NAMES[:3]:
        assert json.loads((marker / "nodes" / f"{name}.json").read_text())["status"] == "ok"
    judged = fleet.unhang("judge", str(marker), "--format", "json", folder=marker)
    assert json.loads(judged.stdout)["schema"] == "unhang/findings/1"
