"""A call on a node never returns: only its own section fails and names the call; the results of
other sections stay valid."""

from __future__ import annotations

import pathlib

import pytest

GONE = "/mnt/gone"
SCRIPT = (pathlib.Path(__file__).parents[1] / "support" / "hung_files.py").read_text(
    encoding="utf-8"
)


def mount_hung_files(fleet, name):
    """A file system below /mnt/gone that never answers."""
    fleet.plant(name, "/srv/hung_files.py", SCRIPT)
    fleet.shell(name, "test -e /dev/fuse || mknod -m 666 /dev/fuse c 10 229")
    started = (
        f"systemd-run --quiet --service-type=notify --unit=gone python3 /srv/hung_files.py {GONE}"
    )
    fleet.shell(name, started, undo=f"systemctl stop gone; umount {GONE}")


@pytest.fixture(scope="module")
def hung(shared_fleet):
    """One audit of a driver that stalls during a call, one that never starts, files that block, and
    a dead mount that no section reads."""
    shared_fleet.answer("gpu001", stall=["nvmlDeviceGetMemoryInfo(3)"])
    shared_fleet.answer("gpu002", stall=["nvmlInitWithFlags"])
    mount_hung_files(shared_fleet, "gpu003")
    away = (
        f"mv /var/lib/dpkg/status /var/lib/dpkg/status.kept && ln -s {GONE}/status"
        " /var/lib/dpkg/status"
    )
    shared_fleet.shell(
        "gpu003",
        away,
        undo="rm /var/lib/dpkg/status && mv /var/lib/dpkg/status.kept /var/lib/dpkg/status",
    )
    mount_hung_files(shared_fleet, "gpu004")
    named = {
        "unhang_nccl_roots": [GONE + "/lib"],
        "unhang_policy": {"torch": {"environments": [GONE + "/env"]}},
    }
    return shared_fleet.audit(host_variables={"gpu003": named})


def test_a_call_that_never_returns_costs_its_section_and_is_named(hung):
    gpus = hung.section("gpu001", "gpus")
    assert gpus["probe"]["status"] == "timeout"
    assert "nvmlDeviceGetMemoryInfo" in gpus["probe"]["error"]


def test_what_was_read_before_the_stall_stands(hung):
    devices = hung.section("gpu001", "gpus")["devices"]
    assert [device["index"] for device in devices[:3]] == [0, 1, 2]
    assert all(device["model"] == "NVIDIA H200" for device in devices[:3])


def test_a_driver_that_does_not_even_start_costs_only_what_it_would_have_said(hung):
    assert hung.section("gpu002", "gpus")["probe"]["status"] == "timeout"
    assert "nvmlInit" in hung.section("gpu002", "gpus")["probe"]["error"]
    assert hung.section("gpu002", "driver")["loaded"]["version"] == "580.159.04"
    assert hung.section("gpu002", "kernel")["probe"]["status"] == "ok"


def test_a_blocking_package_database_costs_only_what_comes_from_it(hung):
    packages = hung.section("gpu003", "packages")
    assert packages["probe"]["status"] == "timeout"
    assert "/var/lib/dpkg/status" in packages["probe"]["error"]
    assert hung.section("gpu003", "driver")["loaded"]["version"] == "580.159.04"
    assert {
        hung.section("gpu003", name)["probe"]["status"]
        for name in ("driver", "fabric_manager", "cuda")
    } == {"ok"}
    assert hung.section("gpu003", "gpus")["count"] == 8
    assert hung.section("gpu003", "network")["probe"]["status"] == "ok"
    assert hung.section("gpu003", "node")["probe"]["status"] == "ok"


def test_a_named_folder_that_hangs_is_named_and_costs_only_itself(hung):
    nccl = hung.section("gpu003", "nccl")
    reasons = str([nccl["probe"], hung.section("gpu003", "torch")["probe"]])
    assert GONE in reasons
    assert [library["path"] for library in nccl["libraries"] or []], nccl


def test_a_dead_mount_that_nobody_asks_about_costs_nothing(hung):
    assert hung.node("gpu004")["status"] == "ok"
    assert {
        section["probe"]["status"] for section in hung.node("gpu004")["facts"]["sections"].values()
    } <= {"ok", "absent"}


def test_what_was_not_read_is_unknown_and_never_a_pass(hung):
    unknown = hung.rules("gpu001", "unknown")
    assert any(rule.startswith(("gpu-", "nvlink")) for rule in unknown)


def test_a_hung_driver_leaves_no_process_behind(hung, shared_fleet):
    for name in ("gpu001", "gpu002", "gpu003"):
        assert "unhang" not in shared_fleet.shell(name, "ps -eo args").replace("unhang-testbed", "")
        assert "AnsiballZ" not in shared_fleet.shell(name, "ps -eo args")
