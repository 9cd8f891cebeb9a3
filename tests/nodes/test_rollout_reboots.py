"""A rollout of a driver: one reboot, proved by the boot id and by the driver that runs afterwards,
and named in the journal."""

from __future__ import annotations

import driver_node
from four_nodes import NAMES
from pinned_fleet import REMEDIATE
from playbooks_on_nodes import planned_run, play
from testbed.node import BOOT_DEADLINE_S

from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.rollout_state import replay

HOST = NAMES[0]
POLICY = {"driver": {"version": driver_node.NEW, "flavour": "proprietary", "held": True}}
BOOT = "cat /proc/sys/kernel/random/boot_id"
DEADLINE_S = 840


def planned(fleet, tmp_path):
    """The run folder of a plan for another driver on one node."""
    driver_node.prepare(fleet, HOST, tmp_path)
    fleet.undo.callback(fleet.shell, HOST, "rm -rf /var/lib/unhang")
    assert play(fleet, "playbooks/audit.yml", [HOST], POLICY).code in (0, 2)
    options = ("--rule", "policy-driver-version", "--floor", "0", "--max-unavailable", "1")
    return planned_run(fleet, *options)


def rolled_out(fleet, run, **variables):
    shown = {
        "unhang_plan": str(run),
        "unhang_apply": True,
        "unhang_smoke": False,
        "unhang_come_up_timeout_s": 1,
        **variables,
    }
    return play(fleet, REMEDIATE, [HOST], POLICY, deadline_s=DEADLINE_S, **shown)


HOLDS = """[Unit]
After=ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/bin/sh -c 'while [ -e /srv/held ]; do sleep 1; done'
TimeoutStopSec=infinity
"""


def test_a_node_that_takes_longer_to_shut_down_is_not_rolled_back_and_its_boot_is_recognised(
    fleet, tmp_path
):
    run = planned(fleet, tmp_path)
    fleet.plant(HOST, "/srv/held", "")
    fleet.plant(HOST, "/etc/systemd/system/holds.service", HOLDS)
    fleet.shell(HOST, "systemctl daemon-reload; systemctl start holds")
    before = fleet.shell(HOST, BOOT).strip()
    rolled = rolled_out(fleet, run, unhang_reboot_timeout_s=10)
    node = replay(read_journal(run).entries).node(HOST)
    assert rolled.code != 0
    assert (node.state, node.rolled_back) == ("unfinished", False), node
    assert "the node is shutting down" in node.why and f"{before} (Reboot: " in node.why
    fleet.bed.order(do="expect", node=HOST, deadline_s=BOOT_DEADLINE_S)
    fleet.shell(HOST, "rm /srv/held")
    fleet.nodes[HOST].await_boot()
    assert rolled_out(fleet, run).code == 0
    node = replay(read_journal(run).entries).node(HOST)
    assert (node.state, node.boots) == ("released", (("reboot", before),)), node.why


BEFORE_A_BOOT = """- hosts: all
  gather_facts: false
  tasks:
    - name: Lock the node
      ansible.builtin.import_role: {name: node_change, tasks_from: lock}
    - name: What is played before each boot
      ansible.builtin.import_role: {name: node_change, tasks_from: before_reboot}
  vars: {drain_adapter: none, node_change_id: "", node_change_checks_jobs: false}
"""


def test_a_node_that_somebody_keeps_from_rebooting_is_not_waited_for(fleet, tmp_path):
    fleet.undo.callback(fleet.shell, HOST, "rm -rf /var/lib/unhang")
    fleet.shell(HOST, "systemctl -q mask reboot.target", undo="systemctl -q unmask reboot.target")
    book = tmp_path / "before.yml"
    book.write_text(BEFORE_A_BOOT)
    done = play(fleet, book, [HOST], {})
    said = " ".join(done.output.split())
    assert done.code == 2
    assert f"reboot.target is masked: somebody keeps {HOST} from a reboot" in said
    assert fleet.shell(HOST, "systemctl is-enabled reboot.target || true").strip() == "masked"
