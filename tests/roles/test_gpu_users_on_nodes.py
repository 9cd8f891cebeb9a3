"""Processes that hold the GPUs of a booted node, and how the role gpu_driver handles them: real
systemd services, a real job, stand-ins for module changes."""

from __future__ import annotations

import json
import subprocess

import audits
import gpu_daemons
import pytest
from driver_node import NEW, OLD, prepare
from module_calls import call_module
from playbooks_on_nodes import play
from role_plays import command_of_role, play_role, state_of

NODE = "gpu001"
POLICY = {"driver": {"version": NEW, "flavour": "proprietary"}}
RELOAD = {"driver": {**POLICY["driver"], "reload": True}}
DCGM, PERSISTENCED, FABRIC = gpu_daemons.UNITS


pytestmark = pytest.mark.timeout(900)  # up to three plays each


@pytest.fixture
def busy(fleet, tmp_path):
    """A node with the old driver and the services that hold its GPU."""
    prepare(fleet, NODE, tmp_path)
    gpu_daemons.start(fleet, NODE)
    return fleet


def loaded(fleet):
    """The version that the kernel reports as loaded."""
    return fleet.shell(NODE, "cat /proc/driver/nvidia/version")


def test_every_holder_is_reported_with_its_service_and_a_job_stops_the_role(busy):
    job = gpu_daemons.start_job(busy, NODE, "auditor")
    users = call_module(busy, NODE, "gpu_users")["users"]
    assert {row["pid"]: (row["user"], row["service"]) for row in users["processes"]} == {
        job: ("auditor", None),
        **{
            gpu_daemons.process_of(busy, NODE, unit): ("root", f"{unit}.service")
            for unit in gpu_daemons.UNITS
        },
    }
    before = state_of(busy, NODE)
    refused = play_role(busy, "gpu_driver", NODE, POLICY)
    assert refused.failed == {NODE: 1}
    assert f"the check found: process {job} (sleep) of auditor on GPU 0 (GPU-" in refused.output
    assert state_of(busy, NODE) == before
    assert gpu_daemons.called(busy, NODE) == []


def test_without_a_scheduler_who_holds_the_gpus_decides(busy, tmp_path):
    free = {"drained": True, "by": "", "reason": "", "jobs": [], "owned": False, "at": ""}
    # services hold them, but no job does
    assert call_module(busy, NODE, "gpu_users", wait_s=0)["drain"] == free
    job = gpu_daemons.start_job(busy, NODE, "auditor")
    found = call_module(busy, NODE, "gpu_users", wait_s=2, poll_s=1)["drain"]
    assert (
        found["drained"],
        [(row["id"], row["user"], row["state"]) for row in found["jobs"]],
    ) == (False, [(str(job), "auditor", "sleep on /dev/nvidia0")])
    assert call_module(busy, NODE, "gpu_users", check=True, wait_s=10_000)["drain"] == found
    path = tmp_path / "wait.yml"
    path.write_text(
        json.dumps(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "tasks": [
                        {"ansible.builtin.include_role": {"name": "drain", "tasks_from": "wait"}}
                    ],
                }
            ]
        )
    )
    refused = play(busy, path, [NODE], POLICY, drain_wait_timeout_s=1, drain_poll_s=1)
    assert refused.failed == {NODE: 1}
    assert f": {job} auditor sleep on /dev/nvidia0; no job was touched" in refused.output
    assert play(busy, path, [NODE], POLICY, drain_beside_jobs=True).code == 0
    assert gpu_daemons.process_of(busy, NODE, "job") == job


def test_a_unit_that_only_monitors_is_no_job_and_one_of_which_a_process_has_mapped_a_gpu_is(busy):
    busy.shell(NODE, f"truncate -s 4096 {gpu_daemons.DEVICE}")
    handle = f"exec 3<{gpu_daemons.DEVICE}; {{}} exec sleep infinity"
    gpu_daemons.start_unit(busy, NODE, "site-exporter", "sh", "-c", handle.format(""))
    gpu_daemons.start_unit(
        busy,
        NODE,
        "trainer",
        *("sh", "-c", handle.format(f'/usr/bin/python3 -c "{gpu_daemons.MAPS}" &')),
    )

    def jobs():
        return [row["state"] for row in call_module(busy, NODE, "gpu_users")["drain"]["jobs"]]

    audits.wait_until(lambda: len(jobs()) == 2, "the trainer has mapped the GPU")
    assert sorted(jobs()) == ["python3 on /dev/nvidia0", "sleep on /dev/nvidia0"]
    busy.shell(NODE, "systemctl stop trainer")
    assert jobs() == []
    # the files are changed under it; it keeps the module loaded, and nobody stops it
    assert "refused" not in play_role(busy, "gpu_driver", NODE, POLICY, "--check").output
    refused = play_role(busy, "gpu_driver", NODE, RELOAD)
    assert "(sleep) of site-exporter.service on GPU 0" in refused.output
    # somebody has logged in and started it, which may be a job that begins
    login = "echo 1000 >/proc/self/loginuid; " + handle.format("")
    gpu_daemons.start_unit(busy, NODE, "typed", "sh", "-c", login)
    assert jobs() == ["sleep on /dev/nvidia0"]


def test_services_stop_in_order_and_start_again_and_fabric_manager_is_left_alone(busy):
    fabric = gpu_daemons.process_of(busy, NODE, FABRIC)
    assert play_role(busy, "gpu_driver", NODE, POLICY).code == 0
    assert gpu_daemons.called(busy, NODE) == [
        f"stop {DCGM}",
        f"stop {PERSISTENCED}",
        f"start {PERSISTENCED}",
        f"start {DCGM}",
    ]
    assert gpu_daemons.process_of(busy, NODE, FABRIC) == fabric
    assert OLD in loaded(busy)


def test_where_nobody_uses_the_gpus_the_modules_are_exchanged_without_a_reboot(busy):
    gpu_daemons.plant_programs(busy, NODE)
    foretold = play_role(busy, "gpu_driver", NODE, RELOAD, "--check")
    assert gpu_daemons.called(busy, NODE) == []
    applied = play_role(busy, "gpu_driver", NODE, RELOAD)
    assert applied.code == 0
    assert applied.changed == foretold.changed
    assert NEW in loaded(busy)
    shown = gpu_daemons.called(busy, NODE)
    assert shown[:3] == [f"stop {unit}" for unit in (DCGM, PERSISTENCED, FABRIC)]
    assert shown[-3:] == [f"start {unit}" for unit in (FABRIC, PERSISTENCED, DCGM)]
    assert shown.index("rmmod nvidia") < shown.index("modprobe nvidia")
    assert play_role(busy, "gpu_driver", NODE, RELOAD).changed == {NODE: 0}


def test_a_module_that_does_not_go_leaves_the_old_one_and_the_services_running(busy):
    gpu_daemons.plant_programs(busy, NODE, rmmod='[ "$1" != nvidia ]')
    failed = play_role(busy, "gpu_driver", NODE, RELOAD)
    assert failed.failed == {NODE: 1}
    assert "failed with 1: rmmod nvidia" in failed.output
    assert all(gpu_daemons.process_of(busy, NODE, unit) for unit in gpu_daemons.UNITS)
    assert '"status": "failed"' in busy.shell(NODE, "cat /var/lib/unhang/states/*/state.json")


def test_a_connection_that_is_lost_during_the_exchange_does_not_end_it(busy):
    gpu_daemons.plant_programs(busy, NODE, rmmod="while [ ! -e /run/go ]; do sleep 0.1; done")
    busy.undo.callback(busy.shell, NODE, "rm -f /run/go")
    argv, environment = command_of_role(busy, "gpu_driver", NODE, RELOAD)
    with subprocess.Popen(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as play:
        audits.wait_until(
            lambda: "rmmod" in busy.shell(NODE, f"cat {gpu_daemons.ORDER}"), "the first module goes"
        )
        # every ssh connection of this node
        busy.shell(NODE, "pkill -KILL -P $(systemctl show -p MainPID --value ssh)")
        play.wait(audits.DEADLINE_S)
    busy.shell(NODE, "touch /run/go")
    audits.wait_until(
        lambda: (
            busy.shell(NODE, "systemctl is-active unhang-gpu-reload || :").strip() == "inactive"
        ),
        "the exchange ends",
    )
    assert NEW in loaded(busy)
    assert all(gpu_daemons.process_of(busy, NODE, unit) for unit in gpu_daemons.UNITS)
    finished = play_role(busy, "gpu_driver", NODE, RELOAD)
    assert finished.code == 0
    assert call_module(busy, NODE, "gpu_users")["stopped_units"] == []


def test_a_service_that_nobody_knows_is_not_stopped(fleet):
    refused = call_module(fleet, NODE, "gpu_services", state="stopped", services=["sshd.service"])
    assert "unhang does not know that these services use GPUs: sshd.service" in refused["msg"]
