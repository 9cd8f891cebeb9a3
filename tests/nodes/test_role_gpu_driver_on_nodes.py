"""The role gpu_driver on a booted node, with small packages: upgrade and hold, audits before and
after a real reboot, and the services that hold GPUs."""

from __future__ import annotations

import gpu_daemons
import pytest
from driver_node import AS_MACHINE, KERNEL, NEW, OLD, prepare
from repository import APT, build_package
from role_plays import play_role, state_of

NODE = "gpu001"
POLICY = {"driver": {"version": NEW, "flavour": "proprietary", "held": True}}
RULES = {
    "policy-driver-version",
    "policy-driver-not-held",
    "driver-library-mismatch",
    "driver-next-load-differs",
}


def rules(fleet):
    """Findings of the audit about the driver under the policy."""
    return RULES & set(
        fleet.audit(groups={"training": [NODE]}, variables={"unhang_policy": POLICY}).rules(NODE)
    )


def driver_of(fleet):
    """Version of the driver's packages."""
    return set(
        fleet.shell(
            NODE, "dpkg-query -W -f '${Version}\\n' nvidia-driver nvidia-kernel-dkms libnvidia-ml1"
        ).split()
    )


@pytest.mark.timeout(1200)  # three audits, five plays, a boot
def test_a_driver_goes_up_is_held_and_counts_after_the_reboot(fleet, tmp_path):
    prepare(fleet, NODE, tmp_path)
    assert rules(fleet) == {"policy-driver-version", "policy-driver-not-held"}
    untouched = state_of(fleet, NODE)
    foretold = play_role(fleet, "gpu_driver", NODE, POLICY, "--check", "--diff")
    assert foretold.code == 0
    assert '"proof": "' in foretold.output
    assert state_of(fleet, NODE) == untouched

    applied = play_role(fleet, "gpu_driver", NODE, POLICY)
    assert applied.code == 0
    assert applied.changed == foretold.changed
    assert driver_of(fleet) == {f"{NEW}-1"}
    assert f"{OLD} is loaded until the node boots" in applied.output
    assert rules(fleet) == {
        "policy-driver-version",
        "driver-library-mismatch",
        "driver-next-load-differs",
    }

    applied_state = state_of(fleet, NODE)
    assert play_role(fleet, "gpu_driver", NODE, POLICY).changed == {NODE: 0}
    assert state_of(fleet, NODE) == applied_state
    fleet.shell(NODE, "apt-get -y -q full-upgrade 2>&1")
    assert driver_of(fleet) == {f"{NEW}-1"}

    boot = fleet.shell(NODE, "cat /proc/sys/kernel/random/boot_id; stat -c %Z /proc/1")
    rebooted = play_role(fleet, "gpu_driver", NODE, POLICY, gpu_driver_reboot=True)
    fleet.nodes[NODE].find_leader()
    assert rebooted.code == 0
    assert fleet.shell(NODE, "cat /proc/sys/kernel/random/boot_id; stat -c %Z /proc/1") != boot
    assert rules(fleet) == set()
    assert play_role(fleet, "gpu_driver", NODE, POLICY).changed == {NODE: 0}


def test_a_kernel_without_headers_is_refused_before_anything_is_touched(fleet, tmp_path):
    prepare(fleet, NODE, tmp_path, headers=False)
    before = state_of(fleet, NODE)
    refused = play_role(fleet, "gpu_driver", NODE, POLICY, **AS_MACHINE)
    assert refused.failed == {NODE: 1}
    assert f"needs headers of {KERNEL}, the kernel that boots next" in refused.output
    assert f"install linux-headers-{KERNEL}" in refused.output
    assert state_of(fleet, NODE) == before


def test_a_driver_that_nvidias_installer_left_is_refused_with_its_own_program(fleet):
    fleet.plant(NODE, "/usr/bin/nvidia-uninstall", "#!/bin/sh\n", 0o755)
    fleet.plant(NODE, "/var/log/nvidia-installer.log", "nvidia-installer log file\n")
    before = state_of(fleet, NODE)
    refused = play_role(fleet, "gpu_driver", NODE, POLICY)
    assert refused.failed == {NODE: 1}
    assert "the check found: one of NVIDIA's .run installer; the role needs" in refused.output
    assert "; run nvidia-uninstall, reboot, and apply the role again" in refused.output
    assert state_of(fleet, NODE) == before


def test_a_module_that_was_not_built_is_reported_with_its_kernel_and_the_log_and_not_booted(
    fleet, tmp_path
):
    prepare(fleet, NODE, tmp_path)
    # the build yields a file that is no module
    fleet.shell(NODE, f"rm /srv/driver/nvidia-{NEW}.ko && touch /srv/driver/nvidia-{NEW}.ko")
    log = f"/var/lib/dkms/nvidia-current/{NEW}/build/make.log"
    head = (
        f"DKMS make.log for nvidia-current-{NEW} for kernel {KERNEL} (x86_64)\nFri Nov 20 07:00:00"
        " UTC 2026\n"
    )
    fleet.plant(
        NODE,
        log,
        head
        + "nvidia/nv-mm.h:88:12: error: too few arguments to function 'get_user_pages'\nmake: ***"
        " [Makefile:97: modules] Error 2\n",
    )
    fleet.shell(
        NODE, f"mkdir -p /var/lib/dkms/nvidia-current/{NEW}/source", undo="rm -rf /var/lib/dkms"
    )
    failed = play_role(fleet, "gpu_driver", NODE, POLICY, **AS_MACHINE)
    assert failed.failed == {NODE: 1}
    assert f"{KERNEL}, the kernel that boots next, has" in failed.output
    assert "error: too few arguments to function" in failed.output
    assert "do not boot it" in failed.output


@pytest.mark.timeout(900)  # three plays
def test_fabric_manager_changes_with_the_driver_on_a_node_with_nvswitch_and_is_not_restarted(
    fleet, tmp_path
):
    names = ("nvidia-fabricmanager-535", "libnvidia-nscq-535")
    prepare(
        fleet,
        NODE,
        tmp_path,
        more=[
            build_package(tmp_path, name, f"{version}-1")
            for name in names
            for version in (OLD, NEW)
        ],
    )
    fleet.shell(NODE, f"{APT} install nvidia-fabricmanager-535={OLD}-1 libnvidia-nscq-535={OLD}-1")
    gpu_daemons.start(fleet, NODE, ["nvidia-fabricmanager"])
    fleet.shell(NODE, "mkdir -p /srv/hardware/driver/nvidia-nvswitch/devices/0000:c4:00.0")
    running = gpu_daemons.process_of(fleet, NODE, "nvidia-fabricmanager")
    assert play_role(fleet, "gpu_driver", NODE, POLICY).code == 0
    installed = fleet.shell(NODE, "dpkg-query -W -f '${Version}\\n' " + " ".join(names)).split()
    assert {*installed, *driver_of(fleet)} == {f"{NEW}-1"}
    together = [
        line
        for line in fleet.shell(NODE, "cat /var/log/apt/history.log").splitlines()
        if line.startswith("Upgrade: ")
    ]
    assert [name for name in ("nvidia-driver:", *names) if name not in together[-1]] == []
    applied = play_role(fleet, "fabric_manager", NODE, POLICY)
    assert applied.changed == {NODE: 1}  # its service, for the next boot
    assert "would break NVLS" in applied.output
    assert play_role(fleet, "fabric_manager", NODE, POLICY).changed == {NODE: 0}
    assert gpu_daemons.process_of(fleet, NODE, "nvidia-fabricmanager") == running
