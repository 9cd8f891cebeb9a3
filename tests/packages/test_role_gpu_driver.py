"""The role gpu_driver with Debian's real driver packages on booted nodes: to another family and
back, upgrade and hold, built by DKMS or refused."""

from __future__ import annotations

import pytest
from debian_node import PROPRIETARY, T535
from driver_node import AS_MACHINE, MACHINE
from role_plays import play_role
from test_driver_transitions import PIN, driver_of, drivers, files_of

from unhang_node.base.root import Root
from unhang_node.change.boot.dkms_builds import read_builds, why_not_built

DEADLINE_S = 3600  # a build takes minutes, and many on a shared machine


def play(node, policy, *arguments, **variables):
    """Runs the role; gives its Played."""
    return play_role(
        node.fleet, "gpu_driver", node.name, policy, *arguments, deadline_s=DEADLINE_S, **variables
    )


def policy_for(version, **more):
    """The policy that names a package's driver."""
    return {
        "driver": {"version": driver_of(version), "flavour": "proprietary", "held": True, **more}
    }


def root_of(node):
    """The node's files."""
    return Root([str(node.fleet.nodes[node.name].root)])


def install_headers(node, version):
    """Installs headers of a real kernel; gives its release."""
    node.shell(
        "DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install"
        f" linux-headers-amd64={version}"
    )
    (release,) = node.shell("ls /lib/modules").split()
    assert root_of(node).exists(f"/lib/modules/{release}/build/Makefile")
    return release


def lay_kernel(node, release):
    """Adds an image and a boot menu for a kernel of which only the headers are installed: it boots
    next."""
    menu = (
        f"menuentry 'Debian' --id one {{\\n  linux /boot/vmlinuz-{release} root=/dev/sda1"
        " ro\\n}\\n"
    )
    for path, content in MACHINE.items():
        node.fleet.plant(node.name, path, content)
    node.shell(
        f'mkdir -p /boot/grub && touch /boot/vmlinuz-{release} && printf "{menu}"'
        " >/boot/grub/grub.cfg"
    )


def test_a_newer_driver_goes_down_into_another_family_and_stays_there(deb13):
    deb13.install(PROPRIETARY, deb13.versions["550"])
    before, files, policy = deb13.installed(), files_of(deb13), policy_for(deb13.versions["535"])
    foretold = play(deb13, policy, "--check", "--diff")
    assert foretold.code == 0
    assert files_of(deb13) == files
    applied = play(deb13, policy)
    assert applied.code == 0
    assert applied.changed == foretold.changed
    assert deb13.shell("dpkg --audit") == ""
    assert drivers(deb13) == {driver_of(deb13.versions["535"])}
    installed = deb13.installed()
    assert {installed[name] for name in (*T535, "libnvidia-tesla-535-ml1")} == {
        deb13.versions["535"]
    }
    assert not {*PROPRIETARY, "libnvidia-ml1", "nvidia-alternative", "nvidia-driver-libs"} & set(
        installed
    )
    assert "nvidia-tesla-535" in deb13.shell("cat /etc/modprobe.d/nvidia.conf")
    files = files_of(deb13)
    assert play(deb13, policy).changed == {deb13.name: 0}
    assert files_of(deb13) == files
    after = deb13.installed()
    deb13.shell("apt-get -q -y full-upgrade")
    assert {
        name: version
        for name, version in deb13.installed().items()
        if name in after and "unhang" not in name
    } == {name: version for name, version in after.items() if "unhang" not in name}
    state = deb13.shell("ls /var/lib/unhang/states").split()[0]
    assert deb13.call("state_restore", id=state)["changed"]
    assert deb13.installed() == before
    assert deb13.shell("dpkg --audit") == ""
    assert not deb13.fleet.nodes[deb13.name].place(PIN).exists()


def test_a_node_without_a_driver_gets_one_whose_module_is_built_for_the_kernel_that_boots_next(
    deb12,
):
    kernel = install_headers(deb12, deb12.versions["headers"])
    lay_kernel(deb12, kernel)
    applied = play(deb12, policy_for(deb12.versions["new"]), **AS_MACHINE)
    assert applied.code == 0
    assert drivers(deb12) == {driver_of(deb12.versions["new"])}
    new = driver_of(deb12.versions["new"])
    builds = read_builds(root_of(deb12))
    assert [(build.version, build.kernel, build.state) for build in builds] == [
        (new, kernel, "installed")
    ]
    assert why_not_built(builds, "nvidia*", kernel, new) == ""
    assert f"nvidia-current/{new}, {kernel}, x86_64: installed" in deb12.shell("dkms status")
    assert play(deb12, policy_for(deb12.versions["new"]), **AS_MACHINE).changed == {deb12.name: 0}


@pytest.mark.nightly
def test_a_branch_too_old_for_the_kernel_is_not_booted_and_comes_back(deb12):
    kernel = install_headers(deb12, deb12.versions["new headers"])
    lay_kernel(deb12, kernel)
    before = deb12.installed()
    failed = play(deb12, policy_for(deb12.versions["470"]), **AS_MACHINE)
    assert failed.failed == {deb12.name: 1}
    assert f"does not build for kernel {kernel}" in failed.output
    assert "make.log line" in failed.output
    assert "do not boot it" in failed.output
    assert f"does not build for kernel {kernel}" in why_not_built(
        read_builds(root_of(deb12)), "nvidia*", kernel
    )
    state = deb12.shell("ls /var/lib/unhang/states").split()[0]
    assert deb12.call("state_restore", id=state)["changed"]
    assert deb12.installed() == before
    assert deb12.shell("dpkg --audit") == ""


@pytest.mark.parametrize(
    ("asked", "says"),
    [("525.147.05", "of Debian 12 installs 535"), ("535.99.99", "On offer: nvidia-driver 535.")],
)
def test_what_the_archive_does_not_have_is_refused_with_what_it_has(deb12, asked, says):
    files = files_of(deb12)
    refused = play(deb12, {"driver": {"version": asked, "flavour": "proprietary"}})
    assert refused.failed == {deb12.name: 1}
    assert says in refused.output
    assert files_of(deb12) == files
