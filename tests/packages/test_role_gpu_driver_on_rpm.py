"""The role gpu_driver on a node that calls itself Rocky Linux 9, over the real dnf 4 and rpm:
packages with the driver's real names, built here.

dnf, its module streams, its version lock and rpm are real, as Debian packages them; the packages
contain files of the test, and the node is no real RHEL.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil

import hardware
import pytest
import rpms
from driver_node import AS_MACHINE, LIBRARY, MACHINE
from fakes.node_tree import elf_file
from fakes.nvml import build_fake_nvml
from four_nodes import CACHE, Fleet
from module_calls import call_module, run_code
from role_plays import play_role
from test_dnf_changes import MORE
from testbed import Testbed

NODE = "rpm1"
OLD, NEW, NEWER = "535.261.03", "580.95.05", "580.105.08"
KERNEL = "5.14.0-503.14.1.el9_5.x86_64"
DRIVER, LIBRARIES, MODULE, OPEN_MODULE = (
    "nvidia-driver",
    "nvidia-driver-cuda-libs",
    "kmod-nvidia-latest-dkms",
    "kmod-nvidia-open-dkms",
)
FABRIC = ("nvidia-fabricmanager", "libnvidia-nscq")
NAMES = (DRIVER, "nvidia-driver-cuda", LIBRARIES, MODULE, *FABRIC)
ROCKY = (
    'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos'
    ' fedora"\nVERSION_ID="9.5"\nPLATFORM_ID="platform:el9"\nPRETTY_NAME="Rocky Linux 9.5"\n'
)
ENTRY = (
    f"title Rocky Linux\nversion {KERNEL}\nlinux /vmlinuz-{KERNEL}\ninitrd"
    f" /initramfs-{KERNEL}.img\n"
)
FILES = {
    **MACHINE,
    "/usr/lib/os-release": ROCKY,
    f"/boot/vmlinuz-{KERNEL}": "",
    "/boot/grub2/grub.cfg": 'set default="${saved_entry}"\nblscfg\n',
    "/boot/grub2/grubenv": f"# GRUB Environment Block\nsaved_entry=0-{KERNEL}\n".ljust(1024, "#"),
    f"/boot/loader/entries/0-{KERNEL}.conf": ENTRY,
    f"/lib/modules/{KERNEL}/modules.dep": "extra/nvidia.ko:\n",
    f"/lib/modules/{KERNEL}/build/Makefile": "",
}
DRIVER_FACTS = """
from unhang_node.facts.collect import collect
driver = collect({"rootfs": ["/srv/machine", "/"], "gather_subset": ["driver"]}, lambda: None)["sections"]["driver"]
print(json.dumps([driver["loaded"]["version"], all(one["held"] for one in driver["packages"])]))
"""
ACCEPTED = {**AS_MACHINE, "gpu_driver_accept_unproved": True}


def build_driver(folder, version):
    """Packages of one driver: they require each other in exactly their version, as NVIDIA's do."""
    needs = f"3:{version}"
    place = f"{hardware.LIBRARIES}/libnvidia-ml.so"
    root = "%{buildroot}"
    lay = (
        f"%install\nmkdir -p {root}{hardware.LIBRARIES}\ntouch {root}{place}.{version}\nln -s"
        f" libnvidia-ml.so.{version} {root}{place}.1"
    )
    rpms.build(
        folder, DRIVER, version, f"Requires: {LIBRARIES} = {needs}\nRequires: nvidia-kmod = {needs}"
    )
    rpms.build(folder, "nvidia-driver-cuda", version, f"Requires: {LIBRARIES} = {needs}")
    rpms.build(
        folder,
        LIBRARIES,
        version,
        "",
        f"{lay}\n%post\ncp {LIBRARY} {place}.{version}",
        f"{place}.{version}\n{place}.1",
    )
    built = (
        f"%post\nmkdir -p /lib/modules/{KERNEL}/extra\ncp /srv/driver/nvidia-{version}.ko"
        f" /lib/modules/{KERNEL}/extra/nvidia.ko"
    )
    for name, other in ((MODULE, OPEN_MODULE), (OPEN_MODULE, MODULE)):
        rpms.build(
            folder, name, version, f"Provides: nvidia-kmod = {needs}\nConflicts: {other}", built
        )
    rpms.build(
        folder,
        "nvidia-open",
        version,
        f"Requires: {OPEN_MODULE} = {needs}\nRequires: {DRIVER} = {needs}",
    )
    for name in FABRIC:
        rpms.build(folder, name, version)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder of all packages."""
    folder = tmp_path_factory.mktemp("rpms")
    rpms.build(folder, "base", "1", "Provides: /bin/sh")  # required by the scripts of packages
    for version in (OLD, NEW, NEWER):
        build_driver(folder, version)
    return folder


@pytest.fixture(scope="module")
def bed(built, tmp_path_factory):
    """The booted node, its driver library and the folder of the files that it serves."""
    work = tmp_path_factory.mktemp("library")
    library = build_fake_nvml(str(work))
    names = [*NAMES, "nvidia-open", OPEN_MODULE]
    closed = [name for name in names if name not in ("nvidia-open", OPEN_MODULE)]
    opened = [name for name in names if name != MODULE]
    streams = {
        "535-dkms": [(name, OLD) for name in closed],
        "580-dkms": [(name, version) for name in closed for version in (NEW, NEWER)],
        "580-open": [(name, version) for name in opened for version in (NEW, NEWER)],
    }
    repository = rpms.index(built, streams, "580-open")

    def prepare(node):
        rpms.make_rpm_node(node, repository)
        node.write(LIBRARY, library_bytes)
        for version in (OLD, NEW, NEWER):
            node.write(
                f"/srv/driver/nvidia-{version}.ko",
                elf_file({".modinfo": f"version={version}\0license=NVIDIA\0".encode()}),
            )
        for path, content in FILES.items():
            node.write(path, content)

    with open(library, "rb") as source:
        library_bytes = source.read()
    with Testbed(CACHE, [NODE], prepare=prepare, trees={NODE: ("bookworm", MORE)}) as testbed:
        yield testbed, library


@pytest.fixture
def fleet(bed, tmp_path):
    """The node with the old driver installed from its stream and loaded, and with NVSwitch
    software."""
    testbed, library = bed
    node = testbed.nodes[NODE]
    with contextlib.ExitStack() as undo:
        fleet = Fleet(testbed, library, tmp_path, undo)
        rpms.begin_rpm(node)
        node.shell(
            "mkdir -p /etc/dnf/modules.d /var/lib/dnf && dnf -q -y module enable"
            " nvidia-driver:535-dkms",
            timeout_s=rpms.DEADLINE_S,
        )
        load(fleet, OLD)
        node.shell(
            f"rm -f {hardware.LIBRARIES}/libnvidia-ml.so.* && dnf -q -y install {' '.join(NAMES)}",
            timeout_s=rpms.DEADLINE_S,
        )
        yield fleet
        undo.pop_all()  # the node is created again
    testbed.renew(node)


def load(fleet, version):
    """Simulates a boot: the installed module becomes the loaded one."""
    fleet.equip(
        NODE,
        dataclasses.replace(
            hardware.H200X8, driver=version, kernel=KERNEL, flavour_line="x86_64 Kernel Module"
        ),
    )
    fleet.shell(NODE, "mkdir -p /srv/hardware/driver/nvidia-nvswitch/devices/0000:c4:00.0")


def versions(fleet, names=NAMES):
    """Installed versions of the driver's packages, as rpm reports them."""
    return set(fleet.shell(NODE, "rpm -q --qf '%{VERSION}\\n' " + " ".join(names)).split())


def stream(fleet):
    """The enabled module stream, from dnf's file."""
    return fleet.shell(NODE, "sed -n s/^stream=//p /etc/dnf/modules.d/nvidia-driver.module").strip()


def policy_for(version, flavour="proprietary"):
    return {"driver": {"version": version, "flavour": flavour, "held": True}}


def loaded_and_held(fleet):
    """[version of the loaded driver, whether all of its packages are held], as the node itself
    reads them."""
    return run_code(fleet, NODE, DRIVER_FACTS)


def newest_state(fleet):
    """Id of the latest saved state."""
    return fleet.shell(NODE, "ls -t /var/lib/unhang/states").split()[0]


def test_a_driver_goes_up_into_another_module_stream_is_locked_there_and_comes_back(fleet):
    node, policy = fleet.nodes[NODE], policy_for(NEW)
    assert loaded_and_held(fleet) == [OLD, False]
    untouched = rpms.state_of(node)
    refused = play_role(fleet, "gpu_driver", NODE, policy, **AS_MACHINE)
    assert refused.failed == {NODE: 1}
    assert "which is only written down" in refused.output
    foretold = play_role(fleet, "gpu_driver", NODE, policy, "--check", "--diff", **ACCEPTED)
    assert foretold.code == 0
    assert "580-dkms" in foretold.output
    assert rpms.state_of(node) == untouched

    applied = play_role(fleet, "gpu_driver", NODE, policy, **ACCEPTED)
    assert applied.code == 0
    assert applied.changed == foretold.changed
    assert versions(fleet) == {NEW}
    assert stream(fleet) == "580-dkms"
    assert f"{OLD} is loaded until the node boots" in applied.output
    applied_state = rpms.state_of(node)
    assert play_role(fleet, "gpu_driver", NODE, policy, **ACCEPTED).changed == {NODE: 0}
    assert rpms.state_of(node) == applied_state
    node.shell("dnf -q -y upgrade", timeout_s=rpms.DEADLINE_S)
    assert versions(fleet) == {NEW}
    load(fleet, NEW)
    assert loaded_and_held(fleet) == [NEW, True]

    assert call_module(fleet, NODE, "state_restore", id=newest_state(fleet))["changed"]
    assert versions(fleet) == {OLD}
    assert stream(fleet) == "535-dkms"
    node.shell("dnf -q -y upgrade", timeout_s=rpms.DEADLINE_S)
    assert versions(fleet) == {OLD}  # the enabled stream has no other version


@pytest.mark.nightly
def test_a_driver_goes_down_and_one_that_has_no_module_for_the_next_boot_is_reported(
    fleet, built, tmp_path
):
    assert play_role(fleet, "gpu_driver", NODE, policy_for(NEWER, "open"), **ACCEPTED).code == 0
    opened = (DRIVER, "nvidia-driver-cuda", LIBRARIES, OPEN_MODULE, "nvidia-open", *FABRIC)
    assert versions(fleet, opened) == {NEWER}
    assert stream(fleet) == "580-open"
    assert "not installed" in fleet.shell(NODE, f"rpm -q {MODULE} || :")

    shutil.copytree(built / "repository", tmp_path / "flat")
    rpms.index_flat(tmp_path / "flat")
    rpms.serve(fleet.nodes[NODE], tmp_path / "flat")
    fleet.shell(NODE, f"dnf -q -y module reset nvidia-driver; rm /srv/driver/nvidia-{OLD}.ko")
    failed = play_role(fleet, "gpu_driver", NODE, policy_for(OLD), **ACCEPTED)
    assert "no repository of this node has module streams" in failed.output
    assert failed.failed == {NODE: 1}
    assert f"{KERNEL}, the kernel that boots next, has nvidia module {NEWER}" in failed.output
    assert versions(fleet) == {OLD}
    assert "not installed" in fleet.shell(NODE, f"rpm -q {OPEN_MODULE} nvidia-open || :")
    assert call_module(fleet, NODE, "state_restore", id=newest_state(fleet))["changed"]
    assert versions(fleet, opened) == {NEWER}
