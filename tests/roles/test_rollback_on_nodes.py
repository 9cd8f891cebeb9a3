"""Locks, saved states and playbooks/rollback.yml on booted nodes: after success, after a failure in
the middle, after a reboot, after a killed controller."""

from __future__ import annotations

import json

import audits
import pytest
from documented_command import as_typed, filled
from fakes.role_play import write_play
from module_calls import call_module
from playbooks_on_nodes import inventory_for, play, playing, run_typed
from repository import APT, build_package, serve
from role_plays import play_role, state_of

NODE = "gpu001"
ROLLBACK = "playbooks/rollback.yml"
POLICY = {"nccl": {"settings": {"NCCL_DEBUG": "WARN", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}}}
VERSION = "580.159.04-1"
HOLD = {"driver": {"version": "580.159.04", "held": True}}
# The process that has a saved state's folder open is the module at work.
NOTHING_LEFT = "that was not rolled back already"
KILL_MODULE = (
    "for one in /proc/[0-9]*; do ls -l $one/fd 2>/dev/null | grep -q /var/lib/unhang/states/ &&"
    " kill -KILL ${one#/proc/}; done"
)


@pytest.fixture
def node(fleet):
    """A node with a hand-written nccl.conf."""
    fleet.plant(NODE, "/etc/nccl.conf", "NCCL_IB_TIMEOUT=22\n", mode=0o640)
    fleet.undo.callback(
        fleet.shell,
        NODE,
        "rm -rf /var/lib/unhang /etc/profile.d/unhang-nccl.sh /etc/systemd/system/ray.service.d",
    )
    return fleet


def states(fleet):
    """Saved states on the node, oldest first."""
    folders = fleet.shell(NODE, "ls -d /var/lib/unhang/states/*/ 2>/dev/null || true").split()
    rows = [json.loads(fleet.shell(NODE, f"cat {folder}/state.json")) for folder in folders]
    return sorted(rows, key=lambda row: row["number"])


def without_saved(fleet):
    """The node's files, except what is saved for a rollback."""
    return "".join(
        line + "\n" for line in state_of(fleet, NODE).splitlines() if "/var/lib/unhang" not in line
    )


def test_a_node_is_brought_back_after_success_after_a_failure_half_way_and_after_a_reboot(node):
    untouched = without_saved(node)
    assert play_role(node, "nccl_profile", NODE, POLICY).code == 0
    applied_state = state_of(node, NODE)
    here = {"inventory/mycluster": inventory_for(node, [NODE], {})}
    listed = run_typed(
        node,
        as_typed(
            "ansible-playbook playbooks/rollback.yml -i inventory/mycluster --limit gpu001 -e"
            " unhang_state=list",
            here,
        ),
    )
    assert (listed.code, states(node)[-1]["id"] in listed.output, listed.changed) == (
        0,
        True,
        {NODE: 0},
    )
    preview = run_typed(
        node,
        as_typed(
            "ansible-playbook playbooks/rollback.yml -i inventory/mycluster --limit gpu001", here
        ),
    )
    assert preview.code == 0
    assert "file /etc/nccl.conf: as it was" in preview.output
    assert "+NCCL_IB_TIMEOUT=22" in preview.output or "-NCCL_DEBUG=WARN" in preview.output
    assert state_of(node, NODE) == applied_state
    assert (
        run_typed(
            node,
            as_typed(
                "ansible-playbook playbooks/rollback.yml -i inventory/mycluster --limit gpu001 -e"
                " unhang_apply=true",
                here,
            ),
        ).code
        == 0
    )
    assert without_saved(node) == untouched
    assert [row["status"] for row in states(node)] == ["rolled_back"]
    places = {"INVENTORY": inventory_for(node, [NODE], {}), "HOST": NODE}
    again = run_typed(
        node,
        filled(
            "ansible-playbook playbooks/rollback.yml -i INVENTORY --limit HOST -e unhang_apply=true",
            places,
        ),
    )
    assert NOTHING_LEFT in " ".join(again.output.split())
    assert again.changed == {NODE: 0}

    # A file where a folder is needed: the role fails after it has changed /etc/nccl.conf.
    node.shell(NODE, "touch /etc/systemd/system/ray.service.d")
    untouched = without_saved(node)
    failed = play_role(
        node,
        "nccl_profile",
        NODE,
        POLICY,
        nccl_profile_systemd_units=["ray.service"],
        nccl_profile_launch_paths=["login", "systemd"],
    )
    assert failed.code != 0
    assert without_saved(node) != untouched
    last = states(node)[-1]
    assert last["status"] == "failed"
    assert "Write drop-ins of units that start jobs" in last["message"]
    to_it = as_typed(
        "ansible-playbook playbooks/rollback.yml -i inventory/mycluster --limit gpu001 -e"
        " unhang_apply=true -e unhang_state=20261120T070000Z-gpu_driver",
        {**here, "20261120T070000Z-gpu_driver": last["id"]},
    )
    assert run_typed(node, to_it).code == 0
    assert without_saved(node) == untouched
    node.shell(NODE, "rm /etc/systemd/system/ray.service.d; test ! -e /var/lib/unhang/lock.json")

    untouched = without_saved(node)
    assert (
        play_role(
            node,
            "nccl_profile",
            NODE,
            POLICY,
            nccl_profile_systemd_units=["ray.service"],
            nccl_profile_launch_paths=["login", "systemd"],
        ).code
        == 0
    )
    assert "ray.service.d" in without_saved(node)
    node.nodes[NODE].order_reboot()
    assert play(node, ROLLBACK, [NODE], {}, unhang_apply=True).code == 0
    assert without_saved(node) == untouched


@pytest.fixture
def waiting(fleet, tmp_path):
    """A node on which package_hold waits in the middle, because a process has dpkg's lock: its pins
    are written, its holds are not. As before at the end."""
    serve(fleet, NODE, [build_package(tmp_path, "nvidia-driver", VERSION)])
    fleet.shell(NODE, f"{APT} install nvidia-driver")
    untouched = without_saved(fleet)
    taker = (
        "import fcntl, time; lock = open('/var/lib/dpkg/lock', 'w'); fcntl.lockf(lock,"
        " fcntl.LOCK_EX); open('/run/taken', 'w'); time.sleep(100000)"
    )
    fleet.shell(
        NODE,
        f'systemd-run --unit=taker --collect python3 -c "{taker}"',
        undo="systemctl stop taker; rm -f /run/taken",
    )
    audits.wait_until(
        lambda: "yes" in fleet.shell(NODE, "test -e /run/taken && echo yes || true"),
        "dpkg's lock is taken",
    )
    return fleet, untouched


def await_pins(fleet):
    pin = "/etc/apt/preferences.d/unhang-package-hold"
    audits.wait_until(
        lambda: "yes" in fleet.shell(NODE, f"test -e {pin} && echo yes || true"),
        "the role has written its pins",
    )
    return json.loads(fleet.shell(NODE, "cat /var/lib/unhang/lock.json"))


def test_two_runs_at_once_the_second_is_told_of_the_first_and_a_killed_one_is_gone_on_with(waiting):
    fleet, untouched = waiting
    with playing(fleet, write_play(fleet.work, "package_hold"), [NODE], HOLD):
        holder = await_pins(fleet)
        second = play_role(fleet, "nccl_profile", NODE, POLICY)
        assert second.failed == {NODE: 1}
        assert f"run {holder['run']} by " in second.output
        assert not fleet.shell(NODE, "cat /etc/nccl.conf 2>/dev/null || true")
    # The controller is dead, its module is not: it waits for dpkg on the node, and the next run
    # waits for the module up to its limit.
    third = play_role(fleet, "package_hold", NODE, HOLD, node_change_take_over_wait_s=5)
    assert third.failed == {NODE: 1}
    assert "its last step is still at work on the node" in third.output
    assert states(fleet)[-1]["status"] == "open"
    fleet.shell(NODE, f"{KILL_MODULE}; systemctl stop taker; ! apt-mark showhold | grep .")
    gone_on_with(fleet, holder)
    assert play(fleet, ROLLBACK, [NODE], {}, unhang_apply=True).code == 0
    assert without_saved(fleet) == untouched


def test_a_run_that_lost_its_connection_is_gone_on_with_by_the_next(waiting):
    fleet, _untouched = waiting
    with playing(fleet, write_play(fleet.work, "package_hold"), [NODE], HOLD) as process:
        holder = await_pins(fleet)
        # the module finishes its work without a connection
        fleet.shell(NODE, "pkill -KILL sshd; systemctl restart ssh; systemctl stop taker")
        assert process.wait(audits.DEADLINE_S) != 0
    assert "UNREACHABLE" in (fleet.work / "playing.log").read_text()
    audits.wait_until(
        lambda: "nvidia" in fleet.shell(NODE, "apt-mark showhold"), "the module has done its part"
    )
    assert states(fleet)[-1]["status"] == "open"
    gone_on_with(fleet, holder)


def gone_on_with(fleet, holder):
    """The next run takes over the lock of the run that it names, reports where that run stopped,
    and does the remaining work."""
    done = play_role(fleet, "package_hold", NODE, HOLD)
    assert done.code == 0
    assert f"took over from run {holder['run']}" in done.output
    assert f"which run {holder['run']} left open at step" in done.output
    assert fleet.shell(NODE, "apt-mark showhold").split() == ["nvidia-driver"]
    assert [row["status"] for row in states(fleet)] == ["finished"]
    fleet.shell(NODE, "test ! -e /var/lib/unhang/lock.json")


def test_packages_come_back_after_a_success_and_after_a_failure_half_way(fleet, tmp_path):
    old, new, broken = "1.0-1", "2.0-1", "3.0-1"
    packages = [build_package(tmp_path, "nvidia-probe", version) for version in (old, new)]
    serve(
        fleet, NODE, [*packages, build_package(tmp_path, "nvidia-probe", broken, postinst="exit 1")]
    )
    fleet.shell(NODE, f"{APT} install nvidia-probe={old}")
    for version, end in ((new, "finished"), (broken, "failed")):
        state_id = call_module(
            fleet, NODE, "saved_state", state="begun", role="gpu_driver", run="r"
        )["id"]
        changed = call_module(
            fleet, NODE, "package_change", install={"nvidia-probe": version}, state_id=state_id
        )
        assert ("stopped_at" in changed) is (end == "failed")
        call_module(fleet, NODE, "saved_state", state=end, id=state_id, message="no")
        places = {"INVENTORY": inventory_for(fleet, [NODE], {}), "HOST": NODE}
        preview = run_typed(
            fleet,
            filled("ansible-playbook playbooks/rollback.yml -i INVENTORY --limit HOST", places),
        )
        assert f"package nvidia-probe: downgrade, {version} to {old}" in preview.output
        assert probe(fleet) != f"ii {old}"
        refused = play(fleet, ROLLBACK, [NODE], {}, unhang_apply=True)
        assert (refused.code, refused.changed) == (2, {NODE: 0})
        assert "unhang_reboot does not allow a reboot" in " ".join(refused.output.split())
        assert probe(fleet) != f"ii {old}"
        boot = fleet.shell(NODE, "cat /proc/sys/kernel/random/boot_id")
        done = play(fleet, ROLLBACK, [NODE], {}, unhang_apply=True, unhang_reboot=True)
        fleet.nodes[NODE].find_leader()
        assert done.code == 0
        assert fleet.shell(NODE, "cat /proc/sys/kernel/random/boot_id") != boot
        assert probe(fleet) == f"ii {old}"
        assert not fleet.shell(NODE, "dpkg --audit")
        assert states(fleet)[-1]["status"] == "rolled_back"


def probe(fleet):
    """State and version of the package, as dpkg reports them."""
    return fleet.shell(
        NODE, "dpkg-query -W -f '${db:Status-Abbrev}${Version}' nvidia-probe"
    ).strip()


def test_an_undo_restores_what_its_run_changed_names_a_later_run_and_leaves_an_admins_file(node):
    first, second = "20261120T070000Z-0123456789", "20261121T070000Z-abcdef0123"
    other = {"nccl": {"settings": {"NCCL_DEBUG": "INFO"}}}
    for run, policy in ((first, POLICY), (second, other)):
        assert play_role(node, "nccl_profile", NODE, policy, unhang_run=run).code == 0
    kept = state_of(node, NODE)
    refused = play_role(node, "undo", NODE, {}, undo_run=first)
    assert refused.code != 0
    assert f"of run {second}, which has changed " in " ".join(refused.output.split())
    assert state_of(node, NODE) == kept
    assert play_role(node, "undo", NODE, {}, undo_run=second).code == 0
    node.shell(NODE, "echo NCCL_SOCKET_IFNAME=eth7 >>/etc/nccl.conf")
    by_admin = node.shell(NODE, "cat /etc/nccl.conf")
    undone = play_role(node, "undo", NODE, {}, undo_run=first)
    assert undone.code == 0
    assert node.shell(NODE, "cat /etc/nccl.conf") == by_admin
    assert "/etc/nccl.conf: unhang left it and it is changed now" in " ".join(undone.output.split())
    assert [(row["run"], row["status"]) for row in states(node)] == [
        (first, "rolled_back"),
        (second, "rolled_back"),
    ]
