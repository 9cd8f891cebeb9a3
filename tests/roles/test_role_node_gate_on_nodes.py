"""The role node_gate on a booted node: the quick check's timer runs without a reload of systemd, and a rollback removes it."""

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
    states = [fleet.shell(NODE, f"systemctl {verb} {TIMER} || true").strip() for verb in ("is-active", "is-enabled")]
    return (*states, fleet.shell(NODE, "systemctl show -P UnitsLoadTimestampMonotonic").strip())


def test_the_timer_runs_the_quick_check_and_a_rollback_takes_script_and_timer_back(fleet, tmp_path):
    fleet.undo.callback(fleet.shell, NODE, "rm -rf /var/lib/unhang /opt/unhang")
    subprocess.run([sys.executable, str(audits.PROJECT / "tools/collector/quick.py"), str(tmp_path / "quick.pyz")], check=True, stdout=subprocess.DEVNULL)
    given = {"node_gate_record": False, "node_gate_quick": True, "node_gate_quick_file": str(tmp_path / "quick.pyz"), "node_gate_quick_for": ["systemd"]}
    _, _, loaded = timer_of(fleet)
    assert play_role(fleet, "node_gate", NODE, {}, **given).code == 0
    assert timer_of(fleet) == ("active", "enabled", loaded)
    fleet.shell(NODE, "systemctl start unhang-quick.service || true")
    assert fleet.shell(NODE, "systemctl show -P ExecMainStatus unhang-quick.service").strip() in ("0", "1")
    assert fleet.shell(NODE, "journalctl -u unhang-quick.service -o cat | grep -c -e 'nothing found' -e 'not read' -e '[a-z]: '").strip() != "0"
    assert play_role(fleet, "node_gate", NODE, {}, **given).changed == {NODE: 0}
    assert play(fleet, "playbooks/rollback.yml", [NODE], {}, unhang_apply=True).code == 0
    active, _, reloaded = timer_of(fleet)
    assert (active, reloaded) == ("inactive", loaded)
    assert fleet.shell(NODE, "find /etc/systemd/system -name 'unhang-quick*'") == ""
    assert fleet.shell(NODE, "ls /opt/unhang").split() == ["unhang-quick.pyz"]
