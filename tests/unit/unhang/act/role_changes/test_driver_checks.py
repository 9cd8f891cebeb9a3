"""After a change of driver: reasons against a reboot, notes about other kernels, and changes that
need a reboot."""

from __future__ import annotations

import pytest
from driver_cases import KERNEL, case, rows

from unhang.act.role_changes.driver_checks import check_driver
from unhang.act.role_changes.driver_plan import plan_driver

TESLA = "535.274.02-1~deb13u1"
PACKAGES = rows(
    {
        "nvidia-tesla-535-driver": TESLA,
        "nvidia-tesla-535-kernel-dkms": TESLA,
        "libnvidia-tesla-535-ml1": TESLA,
    }
)
BUILT = [
    {"module": "nvidia-tesla-535", "version": "535.274.02", "kernel": KERNEL, "state": "installed"}
]
FAILED = [{"module": "nvidia-tesla-535", "version": "535.274.02", "kernel": None, "state": "added"}]
NEW_KERNEL = "6.18.1-amd64"


def kernels(module, headers=True, **more):
    found = [
        {
            "release": KERNEL,
            "image": f"/boot/vmlinuz-{KERNEL}",
            "headers": headers,
            "nvidia_module": module,
        }
    ]
    return found + [
        {
            "release": NEW_KERNEL,
            "image": f"/boot/vmlinuz-{NEW_KERNEL}",
            "headers": False,
            "nvidia_module": one,
        }
        for one in more.values()
    ]


def check(**changes):
    """check_driver on the node as it is after the change."""
    facts = {
        "driver.packages": PACKAGES,
        "kernel.installed": kernels("535.274.02"),
        "kernel.dkms": BUILT,
        "driver.loaded.version": "550.163.01",
    }
    facts.update({path.replace("__", "."): value for path, value in changes.items()})
    return check_driver(case(changes=facts), plan_driver(case()))


def test_a_node_that_will_boot_the_new_driver_is_without_fault_and_pending():
    found = check()
    assert found["faults"] == []
    assert found["notes"] == []
    assert found["pending"].startswith(
        "gpu001: driver 535.274.02 is installed and 550.163.01 is loaded until the node boots"
    )


def test_after_the_boot_nothing_is_pending():
    assert check(driver__loaded__version="535.274.02")["pending"] is None


@pytest.mark.parametrize(
    ("module", "dkms", "says"),
    [
        (
            "",
            FAILED,
            (
                f"{KERNEL}, the kernel that boots next, has no nvidia module, not nvidia module 535.274.02 (DKMS says nvidia-tesla-535 535.274.02: added); do not boot it"
            ),
        ),
        ("550.163.01", FAILED, "has nvidia module 550.163.01, not nvidia module"),
        ("550.163.01", [], "has nvidia module 550.163.01, not nvidia module"),
        (None, [], "has an nvidia module of unknown version"),
        (None, [dict(BUILT[0], state="built")], "(DKMS says nvidia-tesla-535 535.274.02: built)"),
        (None, [dict(BUILT[0], kernel=NEW_KERNEL)], "an nvidia module of unknown version"),
    ],
)
def test_a_kernel_that_would_boot_without_the_driver_is_named(module, dkms, says):
    (fault,) = check(kernel__installed=kernels(module), kernel__dkms=dkms)["faults"]
    assert says in fault


def test_the_kernel_that_boots_next_is_named_for_who_asks_dkms():
    assert check()["kernel"] == KERNEL


def test_a_compressed_module_counts_when_dkms_has_installed_it():
    assert check(kernel__installed=kernels(None))["faults"] == []


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("", "nvidia module none, and no headers"),
        ("550.163.01", "nvidia module 550.163.01"),
        (None, "one of unknown version"),
    ],
)
def test_another_kernel_without_the_driver_is_a_note(module, says):
    found = check(kernel__installed=kernels("535.274.02", other=module))
    assert found["faults"] == []
    (note,) = found["notes"]
    assert NEW_KERNEL in note
    assert says in note


def test_packages_of_another_version_are_a_fault():
    (fault,) = check(driver__packages=rows({"libnvidia-ml1": "550.163.01-2"}))["faults"]
    assert "the packages are of driver 550.163.01, not of 535.274.02" in fault


def test_a_fabric_manager_of_another_version_is_a_fault_on_a_node_with_nvswitch():
    packages = PACKAGES + rows(
        {"nvidia-fabricmanager-535": "535.261.03-1", "nvidia-fabricmanager-dev-535": "535.261.03-1"}
    )
    assert check(driver__packages=packages)["faults"] == []
    faults = check(driver__packages=packages, fabric_manager__nvswitch_present=True)["faults"]
    assert any(
        "nvidia-fabricmanager-535 is 535.261.03-1, not 535.274.02" in fault for fault in faults
    )


def test_a_node_that_shows_no_kernels_is_not_judged_by_them():
    found = check(kernel__installed=[])
    assert found["faults"] == []
    assert "whether the one that boots next has the module was not checked" in found["notes"][0]


@pytest.mark.parametrize(
    ("installed", "says"),
    [
        (None, "was not read with its modules"),
        (kernels("535.274.02", other="535.274.02")[1:], "is not an installed kernel"),
    ],
)
def test_a_kernel_that_was_not_read_is_not_booted_and_in_a_container_said_unchecked(
    installed, says
):
    (fault,) = check(kernel__installed=installed)["faults"]
    assert fault == (
        f"gpu001: {KERNEL}, which boots next, {says}: whether it has nvidia module 535.274.02 is"
        " not known; do not boot it"
    )
    inside = check(kernel__installed=installed, node__virtualization={"is_container": True})
    assert inside["faults"] == []
    assert "it has no kernels, as in a container" in inside["notes"][0]
