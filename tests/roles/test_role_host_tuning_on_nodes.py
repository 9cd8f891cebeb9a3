"""The role host_tuning, and gpu_binding's compute mode, on a booted node: real limits, /dev/shm,
services, sysctls, sessions; and the limits of a container."""

from __future__ import annotations

import pytest
from module_calls import call_module
from node_with_low_limits import NODE, limits_of, make_stingy, shm_size
from role_plays import play_role, state_of

REPAIRED = {"policy-memlock", "policy-nofile", "policy-shm", "remove-ipc-on"}
CANNOT = (
    "no kernel module can be loaded in a systemd-nspawn container",
    "kernel.numa_balancing cannot be set in a systemd-nspawn container",
)


@pytest.fixture
def stingy(fleet):
    """A node whose limits for jobs are too low, and its policy."""
    return make_stingy(fleet)


def may_raise(fleet):
    """True when the node's root may raise hard limits; some machines give their containers no
    CAP_SYS_RESOURCE."""
    return int(fleet.shell(NODE, "grep CapEff /proc/1/status").split()[1], 16) >> 24 & 1


def rules(fleet, policy):
    """Findings of the audit on the node under the policy."""
    return set(
        fleet.audit(groups={"training": [NODE]}, variables={"unhang_policy": policy}).rules(NODE)
    )


@pytest.mark.timeout(900)  # two audits, four plays, a boot
def test_what_the_audit_finds_the_role_repairs_across_a_reboot_and_takes_back(stingy):
    fleet, policy = stingy
    units = {"host_tuning_units": ["ray.service"]}
    most, low = limits_of(fleet, "1", hard=True), ["65536", "1024"]
    found, untouched, size = rules(fleet, policy), state_of(fleet, NODE), shm_size(fleet)
    assert found >= REPAIRED
    assert limits_of(fleet, "slurmd") == low

    foretold = play_role(fleet, "host_tuning", NODE, policy, "--check", "--diff", **units)
    assert foretold.code == 0
    assert (state_of(fleet, NODE), shm_size(fleet), limits_of(fleet, "slurmd")) == (
        untouched,
        size,
        low,
    )

    pid = fleet.shell(NODE, "systemctl show -P MainPID slurmd")
    applied = play_role(fleet, "host_tuning", NODE, policy, **units)
    assert applied.code == 0
    assert applied.changed == foretold.changed
    assert all(shown in applied.output for shown in CANNOT)
    assert fleet.shell(NODE, "systemctl show -P MainPID slurmd") == pid, "slurmd was restarted"
    assert limits_of(fleet, "slurmd") == most
    assert limits_of(fleet, "ray", hard=True)[1] == (most[1] if may_raise(fleet) else "1024")
    assert (
        may_raise(fleet)
        or "ray.service runs on with its old nofile until it is started again" in applied.output
    )
    assert fleet.nodes[NODE].ssh("ulimit -Hn; ulimit -Sn").stdout.split() == [most[1], most[1]]
    left = rules(fleet, policy)
    assert not REPAIRED & left
    assert left <= found, f"the role brought in {left - found}"

    applied_state = state_of(fleet, NODE)
    assert play_role(fleet, "host_tuning", NODE, policy, **units).changed == {NODE: 0}
    assert state_of(fleet, NODE) == applied_state

    fleet.nodes[NODE].order_reboot()
    assert shm_size(fleet) == policy["limits"]["shm_bytes"]
    assert limits_of(fleet, "slurmd") == most
    assert limits_of(fleet, "ray", hard=True)[1] == most[1]

    assert play_role(fleet, "host_tuning", NODE, policy, host_tuning_state="absent").code == 0
    fleet.shell(
        NODE,
        "rm -rf /var/lib/unhang /etc/unhang-fake-nvml.profile.set; systemctl disable"
        " nvidia-persistenced",
    )
    assert state_of(fleet, NODE) == untouched


def test_a_gpu_that_shuts_processes_out_is_opened_but_never_under_a_job(fleet):
    fleet.undo.callback(fleet.shell, NODE, "rm -rf /var/lib/unhang")
    policy = {"gpu": {"compute_mode": "default"}}
    fleet.answer(NODE, devices={"3": {"nvmlDeviceGetComputeMode": 3}})
    found = rules(fleet, policy)
    assert "gpu-compute-mode-exclusive" in found
    assert "gpu-compute-mode-exclusive" not in rules(
        fleet, {"gpu": {"compute_mode": "exclusive_process"}}
    )
    foretold = play_role(fleet, "gpu_binding", NODE, policy, "--check")
    assert "gpu-compute-mode-exclusive" in rules(fleet, policy)
    job = fleet.shell(
        NODE,
        "touch /dev/nvidia3; setsid sleep 1000000 < /dev/nvidia3 > /dev/null 2>&1 & echo $!",
        undo="rm /dev/nvidia3",
    ).strip()
    fleet.undo.callback(fleet.shell, NODE, f"kill {job} || :")
    refused = play_role(fleet, "gpu_binding", NODE, policy)
    assert refused.failed == {NODE: 1}
    assert f"is in use by pid {job} (sleep)" in refused.output
    fleet.shell(NODE, f"kill {job}")
    applied = play_role(fleet, "gpu_binding", NODE, policy)
    assert applied.changed == foretold.changed == {NODE: 1}
    assert "gpu-compute-mode-exclusive" not in rules(fleet, policy)
    assert play_role(fleet, "gpu_binding", NODE, policy).changed == {NODE: 0}


def kernel_parameter(fleet, **options):
    return call_module(fleet, NODE, "host_setting", setting="kernel_parameter", **options)


def test_a_kernel_parameter_is_set_now_and_at_boot_and_given_back(fleet):
    name, place = "net.core.somaxconn", "/proc/sys/net/core/somaxconn"
    fleet.plant(NODE, "/etc/sysctl.d/99-site.conf", f"{name} = 100\n")
    fleet.undo.callback(fleet.shell, NODE, "rm -rf /var/lib/unhang")
    before, files = fleet.shell(NODE, f"cat {place}").strip(), state_of(fleet, NODE)
    foretold = kernel_parameter(fleet, check=True, name=name, value="8192")
    assert (fleet.shell(NODE, f"cat {place}").strip(), state_of(fleet, NODE)) == (before, files)
    done = kernel_parameter(fleet, name=name, value="8192")
    assert (
        (done["before"], done["after"])
        == (foretold["before"], foretold["after"])
        == ({name: before}, {name: "8192"})
    )
    assert fleet.shell(NODE, f"cat {place}") == "8192\n"
    assert not kernel_parameter(fleet, name=name, value="8192")["changed"]
    fleet.nodes[NODE].order_reboot()
    assert fleet.shell(NODE, f"cat {place}") == "8192\n"
    assert kernel_parameter(fleet, name=name, state="absent")["after"] == {name: before}
    assert fleet.shell(NODE, f"cat {place}").strip() == before
    fleet.shell(NODE, "rm -f /var/lib/unhang/fencing.json; rmdir /var/lib/unhang")
    assert state_of(fleet, NODE) == files
