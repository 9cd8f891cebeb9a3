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
from four_nodes import NAMES

# read at every start of Debian's Python, but not with -I -S
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
