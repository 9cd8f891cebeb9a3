"""Plans of the role fabric_manager: the driver's version, its service on, and never a start that
breaks the fabric under jobs."""

from __future__ import annotations

import pytest
from driver_cases import JOB, SERVICES, case, rows

from unhang.act.role_changes.fabric_plan import plan_fabric_manager

FULL = "580.95.05-0ubuntu0.24.04.2"
DRIVER = {"nvidia-driver-580-server-open": FULL, "libnvidia-compute-580-server": FULL}
FABRIC = {"nvidia-fabricmanager-580": FULL, "libnvidia-nscq-580": FULL}
OFFERS = {
    name: [
        {"version": FULL, "origin": "Ubuntu"},
        {"version": "580.82.07-0ubuntu0.24.04.1", "origin": "Ubuntu"},
    ]
    for name in FABRIC
}
POLICY = {"driver": {"version": "580.95.05", "flavour": "open"}}


def plan(
    packages=None, policy=POLICY, users=None, reset=False, offers=OFFERS, previews=False, **changes
):
    facts = {
        "node.os": {"id": "ubuntu", "version_id": "24.04", "family": "debian"},
        "driver.packages": rows({**DRIVER, **FABRIC} if packages is None else packages),
        "driver.loaded": {"is_loaded": True, "version": "580.95.05", "flavour": "open"},
        "fabric_manager": {
            "nvswitch_present": True,
            "installed": True,
            "running": True,
            "enabled": True,
        },
        "interconnect": {"fabric_state": "completed"},
    }
    facts.update({path.replace("__", "."): value for path, value in changes.items()})
    return plan_fabric_manager(case(policy, facts, offers, users, previews=previews), reset)


def acts(found):
    return {
        name: found[name]
        for name in ("install", "enable", "disable", "start", "reset")
        if found[name]
    }


def test_a_node_that_is_as_it_should_be_is_left_alone_and_its_service_never_restarted():
    found = plan()
    assert acts(found) == {}
    assert found["refusals"] == []
    assert "would break NVLS" in found["notes"][0]


def test_a_node_without_nvswitch_gets_none_and_its_service_is_switched_off():
    found = plan({**DRIVER}, fabric_manager__nvswitch_present=False, fabric_manager__enabled=False)
    assert acts(found) == {}
    assert acts(plan(fabric_manager__nvswitch_present=False)) == {"disable": True}


def test_it_is_installed_at_the_drivers_version():
    assert acts(plan(DRIVER, fabric_manager__enabled=False)) == {"install": FABRIC, "enable": True}
    older = dict.fromkeys(FABRIC, "580.82.07-0ubuntu0.24.04.1")
    assert plan({**DRIVER, **older})["install"] == FABRIC


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"policy": {"driver": {"version": "580.126.09"}}},
            "found: driver 580.95.05; the role needs driver version 580.126.09; apply the role gpu_driver",
        ),
        ({"packages": {}}, "found: driver none"),
        ({"packages": DRIVER, "offers": {}}, "not offered"),
        (
            {"packages": DRIVER, "users": {"processes": [JOB]}},
            "found: process 4711 (python3) of alice",
        ),
        ({"fabric_manager__nvswitch_present": None}, "apply the role as root"),
    ],
)
def test_what_must_not_be_is_refused(changes, says):
    found = plan(**changes)
    assert says in " ".join(row["text"] for row in found["refusals"])
    assert acts(found).keys() <= {"install", "enable"}


def test_in_a_preview_the_driver_that_is_still_to_come_is_a_note():
    found = plan(policy={"driver": {"version": "580.126.09"}}, previews=True)
    assert found["refusals"] == []
    assert acts(found) == {}
    assert "cannot be foreseen" in found["notes"][0]


def test_it_is_started_plainly_at_its_first_start_since_the_boot_alone():
    down = {"fabric_manager__running": False}
    assert acts(plan(**down, interconnect__fabric_state="not_started")) == {"start": True}
    again = plan(**down)
    assert acts(again) == {}
    assert "takes a reset of all GPUs: fabric_manager_reset, or a reboot" in again["notes"][0]


def test_with_a_reset_allowed_the_plan_says_so_and_names_no_command():
    services = [row for row in SERVICES if "fabric" not in row["unit"]]
    found = plan(fabric_manager__running=False, reset=True, users={"services": services})
    assert acts(found) == {"reset": True}


def test_no_gpu_is_reset_that_is_partitioned():
    gpus = [{"index": 0, "uuid": "GPU-0", "mig": {"enabled": True, "pending": True}}]
    found = plan(fabric_manager__running=False, reset=True, gpus__devices=gpus)
    assert acts(found) == {}
    assert (
        "GPU 0 (GPU-0) is in MIG mode, and its instances would be gone; reboot the node"
        in found["notes"][0]
    )


def test_no_gpu_is_reset_under_a_job_nor_a_service_started_on_another_driver():
    busy = plan(fabric_manager__running=False, reset=True, users={"processes": [JOB]})
    assert acts(busy) == {}
    assert "4711" in busy["notes"][0]
    other = plan(
        fabric_manager__running=False,
        driver__loaded={"is_loaded": True, "version": "580.82.07"},
        interconnect__fabric_state="not_started",
    )
    assert acts(other) == {}
    assert "starts with the next boot" in other["notes"][0]


def test_a_policy_that_does_not_match_leaves_everything_alone():
    assert acts(plan({}, {"fabric_manager": {"match_driver": False}})) == {}
