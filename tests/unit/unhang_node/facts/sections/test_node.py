"""Section node: what machine this is."""

from __future__ import annotations

import pytest
from recorded_roots import copied, facts, unread, write

from unhang_node.base.parse.values import (
    parse_assignments,
    parse_cpu_list,
    parse_integer,
    release_key,
)

DMI = "/sys/class/dmi/id/"


def test_a_healthy_h200_node_is_known_by_its_files(tmp_path):
    node = facts(copied("h200x8", tmp_path), "node")
    assert node["os"] == {
        "id": "ubuntu",
        "version_id": "24.04",
        "codename": "noble",
        "family": "debian",
        "pretty_name": "Ubuntu 24.04.3 LTS",
    }
    assert node["cpu"]["logical_cpus"] == 128
    assert node["cpu"]["sockets"] == 1
    assert node["uptime_s"] == 912.41
    assert node["virtualization"] == {"kind": "kvm", "is_vm": True, "is_container": False}
    assert node["python"] == {"path": "/usr/bin/python3.12", "version": "3.12"}
    assert node["image"] == {"kind": "installed", "evidence": "root file system ext4"}
    assert node["dmi"] is None


def test_profiles_of_apparmor_are_told_for_each_container_runtime(tmp_path):
    root = copied("rdma-h100", tmp_path)
    assert {
        runtime["apparmor_profile"] for runtime in facts(root, "node")["container_runtimes"]
    } == {None}
    (root / "etc/apparmor.d").mkdir(parents=True)
    (root / "etc/apparmor.d/usr.bin.enroot-nsenter").write_text("")
    told = {
        runtime["name"]: runtime["apparmor_profile"]
        for runtime in facts(root, "node")["container_runtimes"]
    }
    assert told == {
        "podman": False,
        "enroot": True,
        "apptainer": False,
        "singularity": False,
        "pyxis": False,
    }


def test_a_bare_metal_slurm_node_shows_its_runtimes_and_plugins(tmp_path):
    node = facts(copied("rdma-h100", tmp_path), "node")
    assert [runtime["name"] for runtime in node["container_runtimes"]] == [
        "podman",
        "enroot",
        "apptainer",
        "singularity",
        "pyxis",
    ]
    assert node["container_runtimes"][-1]["path"] == "/etc/slurm/plugstack.conf.d/pyxis.conf:2"
    assert (node["slurm"]["slurmd"], node["slurm"]["version"], node["slurm"]["config"]) == (
        True,
        "23.11.6",
        None,
    )
    assert node["virtualization"] == {"kind": "none", "is_vm": False, "is_container": False}
    assert node["cpu"]["sockets"] == 2
    assert node["secure_boot"] is True
    assert node["os"]["family"] == "redhat"
    assert node["dmi"]["product"] == "PowerEdge XE9680"


def test_a_container_does_not_speak_for_its_node(tmp_path):
    folder = copied("container", tmp_path)
    node = facts(folder, "node")
    assert node["virtualization"]["kind"] == "docker"
    assert node["virtualization"]["is_container"] is True
    assert node["image"]["kind"] is None
    assert node["secure_boot"] is None
    assert unread(folder, "node")["image"]["status"] == "absent"


def test_oci_mounts_alone_betray_a_container(tmp_path):
    folder = copied("container", tmp_path)
    (folder / ".dockerenv").unlink()
    assert facts(folder, "node")["virtualization"]["kind"] == "container"


def test_a_machine_made_from_a_container_image_is_no_container(tmp_path):
    folder = copied("h200x8", tmp_path)
    write(folder, "/.dockerenv", "")
    assert facts(folder, "node")["virtualization"]["is_container"] is False


@pytest.mark.parametrize(
    ("product", "vendor", "kind"),
    [
        ("Standard PC (Q35 + ICH9, 2009)", "QEMU", "qemu"),
        ("KVM", "Red Hat", "kvm"),
        ("p5.48xlarge", "Amazon EC2", "amazon"),
        ("Google Compute Engine", "Google", "google"),
        ("Virtual Machine", "Microsoft Corporation", "hyperv"),
        ("VMware7,1", "VMware, Inc.", "vmware"),
        ("OpenStack Nova", "OpenStack Foundation", "kvm"),
        ("Whatever", "Nobody", "vm-other"),
    ],
)
def test_a_hypervisor_is_named_by_dmi(tmp_path, product, vendor, kind):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    write(folder, "/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n\n")
    write(folder, DMI + "product_name", product)
    write(folder, DMI + "sys_vendor", vendor)
    assert facts(folder, "node")["virtualization"] == {
        "kind": kind,
        "is_vm": True,
        "is_container": False,
    }


@pytest.mark.parametrize("flags", ["flags\t: fpu", ""])
def test_a_clouds_bare_metal_is_no_virtual_machine(tmp_path, flags):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    write(folder, "/proc/cpuinfo", "processor\t: 0\n" + flags + "\n\n")
    write(folder, DMI + "product_name", "p4d.metal")
    write(folder, DMI + "sys_vendor", "Amazon EC2")
    assert facts(folder, "node")["virtualization"] == {
        "kind": "none",
        "is_vm": False,
        "is_container": False,
    }


def test_the_cpus_own_flag_beats_a_clouds_name(tmp_path):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    write(folder, DMI + "product_name", "Google Compute Engine")
    assert facts(folder, "node")["virtualization"]["is_vm"] is False


def test_firecracker_is_named_by_its_acpi_table(tmp_path):
    folder = copied("h200x8", tmp_path)
    write(folder, "/sys/firmware/acpi/tables/DSDT", b"DSDT\x00\x00\x00\x00\x02\x00FIRECKFCVMDSDT")
    assert facts(folder, "node")["virtualization"]["kind"] == "firecracker"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\x00", False), (b"\x06\0\0\0", None), (b"", None)],
)
def test_secure_boot_is_the_fifth_byte_of_its_variable(tmp_path, value, wanted):
    folder = copied("rdma-h100", tmp_path)
    write(
        folder, "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", value
    )
    assert facts(folder, "node")["secure_boot"] is wanted


@pytest.mark.parametrize(
    ("listed", "enrolled"),
    [(b"\xa1\x59KEY-IN-DER\x00", True), (b"\xa1\x59ANOTHER", False), (None, None)],
)
def test_a_key_of_dkms_is_enrolled_when_the_firmware_lists_it(tmp_path, listed, enrolled):
    folder = copied("rdma-h100", tmp_path)
    write(folder, "/var/lib/dkms/mok.pub", b"KEY-IN-DER")
    if listed:
        write(
            folder,
            "/sys/firmware/efi/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23",
            listed,
        )
    assert facts(folder, "node")["module_key"] == {
        "path": "/var/lib/dkms/mok.pub",
        "enrolled": enrolled,
    }


def test_a_node_without_a_key_has_none_enrolled(tmp_path):
    assert facts(copied("h200x8", tmp_path), "node")["module_key"] == {
        "path": None,
        "enrolled": False,
    }


def test_a_machine_started_by_bios_has_no_secure_boot(tmp_path):
    assert facts(copied("h200x8", tmp_path), "node")["secure_boot"] is False


@pytest.mark.parametrize(
    ("path", "text", "evidence"),
    [
        ("/warewulf/config", "", "/warewulf/config"),
        (
            "/proc/cmdline",
            "quiet imgurl=http://10.0.0.1/image",
            "kernel command line imgurl=http://10.0.0.1/image",
        ),
        ("/proc/self/mountinfo", "25 1 0:3 / / rw - tmpfs rootfs rw", "root file system tmpfs"),
        (
            "/proc/self/mountinfo",
            "25 1 0:3 / / rw - nfs4 nas:/images/gpu rw",
            "root file system nfs4",
        ),
    ],
)
def test_a_stateless_image_is_told_by_its_marks(tmp_path, path, text, evidence):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    write(folder, path, text)
    assert facts(folder, "node")["image"] == {"kind": "stateless", "evidence": evidence}


def test_slurm_on_a_network_file_system_is_not_touched(tmp_path):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    write(folder, "/opt/slurm/sbin/slurmd", "")
    assert facts(folder, "node")["slurm"]["slurmd"] is True
    write(
        folder,
        "/proc/self/mountinfo",
        "25 1 253:0 / / rw - ext4 /dev/vda1 rw\n26 25 0:40 / /opt/slurm rw - nfs4 nas:/slurm rw",
    )
    assert facts(folder, "node")["slurm"]["slurmd"] is False


def marks(folder):
    """(kubelet, gpu_operator) of a node."""
    found = facts(folder, "node")["kubernetes"]
    return found["kubelet"], found["gpu_operator"]


def test_kubernetes_and_the_gpu_operator_leave_marks(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    assert marks(folder) == (False, False)
    write(folder, "/var/lib/kubelet/config.yaml", "")
    write(folder, "/run/nvidia/validations/driver-ready", "")
    assert marks(folder) == (True, True)


def test_a_commented_out_plugin_is_not_there(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    write(
        folder,
        "/etc/slurm/plugstack.conf.d/pyxis.conf",
        "#required /usr/local/lib/slurm/spank_pyxis.so\n",
    )
    assert "pyxis" not in [
        runtime["name"] for runtime in facts(folder, "node")["container_runtimes"]
    ]


@pytest.mark.parametrize("uptime", ["nan 1", "inf", "-3 2", "", "1e300"])
def test_an_absurd_uptime_is_null(tmp_path, uptime):
    folder = copied("h200x8", tmp_path)
    write(folder, "/proc/uptime", uptime)
    assert facts(folder, "node")["uptime_s"] is None


def test_control_characters_never_reach_a_fact(tmp_path):
    folder = copied("h200x8", tmp_path)
    write(folder, "/proc/sys/kernel/hostname", "gpu\x1b[31m001\n")
    assert facts(folder, "node")["hostname"] == "gpu [31m001"


def test_the_newest_kernel_release_sorts_last():
    releases = [
        "6.8.0-45-generic",
        "5.15.0-105-generic",
        "6.8.0-9-generic",
        "6.8.0-1008-nvidia",
        "6.11.0-8-generic",
        "6.8.0-45-generic-64k",
    ]
    assert sorted(releases, key=release_key) == [
        "5.15.0-105-generic", "6.8.0-9-generic", "6.8.0-45-generic", "6.8.0-45-generic-64k",
        "6.8.0-1008-nvidia", "6.11.0-8-generic",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "x", "1 2", "9" * 21, "1_000", "٣"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="not a number"):
        parse_integer(text)


@pytest.mark.parametrize(("text", "wanted"), [("0-3,8", [0, 1, 2, 3, 8]), ("", []), ("5", [5])])
def test_cpu_lists_are_spelt_out(text, wanted):
    assert parse_cpu_list(text) == wanted


@pytest.mark.parametrize("text", ["0-99999999", "a-b", "3-"])
def test_absurd_cpu_lists_are_refused(text):
    with pytest.raises(ValueError, match=r"not a (number|CPU list)|CPUs"):
        parse_cpu_list(text)


def test_assignments_lose_their_quotes_and_comments():
    assert parse_assignments("# x=1\nA=\"b c\"\nD='e'\nF=g=h\nno\n") == {
        "A": "b c",
        "D": "e",
        "F": "g=h",
    }
