"""Options of the module given as inventory variables: a mounted image, a recorded tree and a kernel
log instead of the node's own."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

ROOTS = pathlib.Path(__file__).parents[1] / "fixtures" / "roots"
OS_RELEASE = (
    'ID=ubuntu\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n'
)
FELL_OFF = (
    "[ 1234.567890] NVRM: Xid (PCI:0000:00:06): 79, pid='<unknown>', name=<unknown>, GPU has fallen"
    " off the bus.\n"
)


def copy_tree(fleet, name, source, target):
    """A folder of the tests on the node."""
    fleet.undo.callback(fleet.nodes[name].shell, f"rm -rf {target}")
    packed = subprocess.run(
        ["tar", "--create", "--directory", str(source), "."], check=True, capture_output=True
    ).stdout
    fleet.plant(name, "/srv/packed.tar", packed)
    fleet.shell(
        name,
        f"mkdir -p {target} && tar --extract --no-same-owner --file /srv/packed.tar --directory"
        f" {target}",
    )


@pytest.fixture(scope="module")
def audit(shared_fleet):
    """One audit in which each node has another place."""
    shared_fleet.plant("gpu001", "/srv/image/etc/os-release", OS_RELEASE)
    copy_tree(shared_fleet, "gpu002", ROOTS / "a6000x3-kernel-5.4", "/srv/recorded")
    shared_fleet.plant("gpu003", "/srv/kernel.log", FELL_OFF)
    places = {
        "gpu001": {
            "unhang_rootfs": ["/srv/image"],
            "unhang_procfs": "/proc",
            "unhang_sysfs": "/sys",
        },
        "gpu002": {"unhang_rootfs": "/srv/recorded"},
        "gpu003": {"unhang_kernel_log": "/srv/kernel.log"},
    }
    return shared_fleet.audit(host_variables=places)


def test_a_mounted_image_is_read_in_the_place_of_the_running_system(audit):
    assert audit.node("gpu001")["status"] == "ok"
    assert audit.section("gpu001", "node")["os"]["id"] == "ubuntu"
    assert audit.section("gpu004", "node")["os"]["id"] == "debian"


def test_a_recorded_tree_is_read_and_says_that_it_is_one(audit):
    assert audit.node("gpu002")["facts"]["collector"]["recorded"] is True
    assert audit.section("gpu002", "kernel")["release"].startswith("5.4.0")
    assert "5.4.0" not in audit.section("gpu004", "kernel")["release"]


def test_a_kernel_log_in_a_file_is_judged_as_the_kernels_own(audit):
    (event,) = [
        event for event in audit.section("gpu003", "faults")["events"] if event["kind"] == "xid"
    ]
    assert event["code"] == 79
    assert any(rule.startswith("xid-") for rule in audit.rules("gpu003"))
    assert not any(rule.startswith("xid-") for rule in audit.rules("gpu004"))
