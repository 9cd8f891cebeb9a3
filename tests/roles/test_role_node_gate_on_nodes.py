"""The role node_gate on a booted node: its units run without a reload of systemd, and a rollback
removes them."""

from __future__ import annotations

import subprocess
import sys

import audits
from playbooks_on_nodes import play
from role_plays import play_role

NODE = "gpu001"
TIMER = "unhang-quick.timer"


def timer_of(fleet):
    """(active, enabled) of the timer, and when systemd was last reloaded."""
    states = [
        fleet.shell(NODE, f"systemctl {verb} {TIMER} || true").strip()
        for verb in ("is-active", "is-enabled")
    ]
    return (*states, fleet.shell(NODE, "systemctl show -P UnitsLoadTimestampMonotonic").strip())


def test_the_timer_runs_the_quick_check_and_a_rollback_takes_script_and_timer_back(fleet, tmp_path):
    fleet.undo.callback(fleet.shell, NODE, "rm -rf /var/lib/unhang /opt/unhang")
    subprocess.run(
        [
            sys.executable,
            str(audits.PROJECT / "tools/collector/quick.py"),
            str(tmp_path / "quick.pyz"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    given = {
        "node_gate_record": False,
        "node_gate_quick": True,
        "node_gate_quick_file": str(tmp_path / "quick.pyz"),
        "node_gate_quick_for": ["systemd"],
    }
    _, _, loaded = timer_of(fleet)
    assert play_role(fleet, "node_gate", NODE, {}, **given).code == 0
    assert timer_of(fleet) == ("active", "enabled", loaded)
    fleet.shell(NODE, "systemctl start unhang-quick.service || true")
    assert fleet.shell(NODE, "systemctl show -P ExecMainStatus unhang-quick.service").strip() in (
        "0",
        "1",
    )
    assert (
        fleet.shell(
            NODE,
            "journalctl -u unhang-quick.service -o cat | grep -c -e 'nothing found' -e 'not read'"
            " -e '[a-z]: '",
        ).strip()
        != "0"
    )
    assert play_role(fleet, "node_gate", NODE, {}, **given).changed == {NODE: 0}
    assert play(fleet, "playbooks/rollback.yml", [NODE], {}, unhang_apply=True).code == 0
    active, _, reloaded = timer_of(fleet)
    assert (active, reloaded) == ("inactive", loaded)
    assert fleet.shell(NODE, "find /etc/systemd/system -name 'unhang-quick*'") == ""
    assert fleet.shell(NODE, "ls /opt/unhang").split() == ["unhang-quick.pyz"]


# Stands for the node's unhang: it says what it was asked, and watches until it is stopped.
UNHANG = "#!/bin/sh\necho asked: $*\nexec sleep 3000\n"


def watcher_of(fleet):
    """(active, enabled) of the watcher."""
    return tuple(
        fleet.shell(NODE, f"systemctl {verb} unhang-watch.service || true").strip()
        for verb in ("is-active", "is-enabled")
    )


def printed(fleet):
    return fleet.shell(NODE, "journalctl -u unhang-watch -o cat")


def test_one_service_watches_and_a_rollback_takes_it_back(fleet):
    fleet.undo.callback(
        fleet.shell,
        NODE,
        "systemctl stop unhang-watch; rm -rf /var/lib/unhang /opt/unhang /var/log/unhang",
    )
    given = {
        "node_gate_record": False,
        "node_gate_watch": True,
        "node_gate_watch_arguments": ["--on-hang", "dump"],
    }
    refused = play_role(fleet, "node_gate", NODE, {}, **given)
    assert "unhang cannot be run at /usr/local/bin/unhang on the node" in " ".join(
        refused.output.split()
    )
    assert refused.code != 0
    fleet.plant(NODE, "/usr/local/bin/unhang", UNHANG, mode=0o755)
    assert play_role(fleet, "node_gate", NODE, {}, "--check", **given).code == 0
    unit = "/etc/systemd/system/unhang-watch.service"
    assert fleet.shell(NODE, f"ls -d /opt/unhang {unit} 2>/dev/null || true") == ""
    _, _, loaded = timer_of(fleet)
    assert play_role(fleet, "node_gate", NODE, {}, **given).code == 0
    assert watcher_of(fleet) == ("active", "enabled")
    assert "asked: watch --all --on-hang dump\n" in printed(fleet)
    assert play_role(fleet, "node_gate", NODE, {}, **given).changed == {NODE: 0}
    given["node_gate_watch_arguments"] = ["--act"]
    assert play_role(fleet, "node_gate", NODE, {}, **given).code == 0
    audits.wait_until(lambda: "asked: watch --all --act\n" in printed(fleet), "it started anew")
    assert fleet.shell(NODE, "stat -c '%a %U' /var/log/unhang").strip() == "700 root"
    assert timer_of(fleet)[2] == loaded
    for _ in range(2):  # the change of the options, and the installation
        assert play(fleet, "playbooks/rollback.yml", [NODE], {}, unhang_apply=True).code == 0
    assert watcher_of(fleet)[0] == "inactive"
    assert fleet.shell(NODE, "ls /opt/unhang; find /etc/systemd/system -name 'unhang-watch*'") == ""
    assert play_role(fleet, "node_gate", NODE, {}, **given).code == 0
    assert play_role(fleet, "node_gate", NODE, {}, **given, node_gate_state="absent").code == 0
    assert watcher_of(fleet)[0] == "inactive"
    assert fleet.shell(NODE, "ls /opt/unhang; find /etc/systemd/system -name 'unhang-watch*'") == ""
