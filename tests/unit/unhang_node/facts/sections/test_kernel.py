"""Section kernel: the running kernel, the installed kernels, and the kernel of the next boot."""

from __future__ import annotations

import struct

import pytest
from recorded_roots import copied, facts, unread, write

from unhang_node.base.parse.grub import find_entry, parse_default, parse_menu, release_of_image
from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.facts.sections.boot import read_boot
from unhang_node.facts.sections.installed_kernels import find_nvidia_module
from unhang_node.facts.sections.kernel import parse_module_line

OLD = "5.4.0-182-generic"
NEW = "5.4.0-190-generic"
EFIVAR = "/sys/firmware/efi/efivars/{}-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


@pytest.fixture
def workstation(tmp_path):
    return copied("a6000x3-kernel-5.4", tmp_path)


@pytest.fixture
def rocky(tmp_path):
    return copied("rdma-h100", tmp_path)


def test_the_running_kernel_its_taints_and_modules_are_read(workstation):
    kernel = facts(workstation, "kernel")
    assert kernel["release"] == OLD
    assert kernel["taints"] == {"value": 12289, "letters": ["P", "O", "E"]}
    nvidia = next(module for module in kernel["modules"] if module["name"] == "nvidia")
    assert nvidia == {
        "name": "nvidia", "version": "545.23.08", "srcversion": "FEDCBA9876543210FEDCBA9",
        "out_of_tree": True, "users": 610,
        "parameters": {"NVreg_OpenRmEnableUnsupportedGpus": "1"},
    }  # fmt: skip
    assert "igb" not in [module["name"] for module in kernel["modules"]]
    assert kernel["out_of_tree"] == ["nvidia_uvm", "nvidia_drm", "nvidia"]


def test_a_module_of_the_kernels_own_tree_is_not_out_of_tree(workstation):
    write(
        workstation,
        "/proc/modules",
        "ib_core 540000 4 - Live 0x0\nnvidia 56377344 610 - Live 0x0 (POE)\nzfs 1 1 - Live 0x0"
        " (P)\n",
    )
    rows = [
        (module["name"], module["out_of_tree"])
        for module in facts(workstation, "kernel")["modules"]
    ]
    assert rows == [("ib_core", False), ("nvidia", True), ("zfs", False)]
    assert unread(workstation, "kernel")["modules[ib_core].version"]["status"] == "absent"


def test_a_secret_on_the_kernel_command_line_stays_on_the_node(workstation):
    cmdline = facts(workstation, "kernel")["cmdline"]
    assert "abc123" not in cmdline
    assert "registry_token=***" in cmdline
    assert "amd_iommu=on" in cmdline


def test_each_installed_kernel_shows_the_nvidia_module_that_it_would_load(workstation):
    assert facts(workstation, "kernel")["installed"] == [
        {"release": NEW, "image": "/boot/vmlinuz-" + NEW, "headers": False, "nvidia_module": ""},
        {
            "release": OLD,
            "image": "/boot/vmlinuz-" + OLD,
            "headers": True,
            "nvidia_module": "545.23.08",
        },
    ]


def test_dkms_tells_added_built_and_installed_apart(workstation):
    assert [(row["module"], row["kernel"], row["state"]) for row in facts(workstation, "kernel")["dkms"]] == [
        ("gdrdrv", None, "added"), ("nvidia", OLD, "installed"), ("nvidia", NEW, "built"),
    ]  # fmt: skip


def test_a_compressed_module_takes_its_version_from_dkms(workstation):
    folder = f"/lib/modules/{OLD}"
    write(workstation, folder + "/modules.dep", "updates/dkms/nvidia.ko.zst:\n")
    assert facts(workstation, "kernel")["installed"][1]["nvidia_module"] == "545.23.08"


def test_of_several_modules_debians_alternative_names_the_one_that_is_taken(workstation):
    folder = f"/lib/modules/{OLD}"
    built = "".join(
        f"updates/dkms/{name}.ko.zst:\n"
        for name in ("nvidia-current", "nvidia-tesla-535", "nvidia-current-open")
    )
    write(workstation, folder + "/modules.dep", built)
    for name in ("nvidia-current", "nvidia-tesla-535", "nvidia-current-open"):
        write(
            workstation,
            "/etc/modprobe.d/nvidia.conf",
            f"install nvidia modprobe -i {name} $CMDLINE_OPTS\n\ninstall nvidia-drm modprobe"
            " -i x\n",
        )
        assert (
            find_nvidia_module(Root([str(workstation)]), OLD)
            == f"{folder}/updates/dkms/{name}.ko.zst"
        )
    write(
        workstation, "/etc/modprobe.d/nvidia.conf", "install nvidia modprobe -i nvidia-tesla-470\n"
    )
    assert find_nvidia_module(Root([str(workstation)]), OLD) is None


def test_a_compressed_module_without_dkms_is_null_and_says_why(rocky):
    assert facts(rocky, "kernel")["installed"][0]["nvidia_module"] is None
    row = unread(rocky, "kernel")["installed[5.14.0-427.13.1.el9_4.x86_64].nvidia_module"]
    assert row["status"] == "absent"
    assert "compressed" in row["reason"]


def test_a_module_file_that_is_no_elf_file_is_an_error_not_a_version(workstation):
    write(
        workstation,
        f"/lib/modules/{OLD}/updates/dkms/nvidia.ko",
        b"\x7fELF" + struct.pack("<Q", 1 << 63) * 20,
    )
    assert facts(workstation, "kernel")["installed"][1]["nvidia_module"] is None
    assert unread(workstation, "kernel")[f"installed[{OLD}].nvidia_module"]["status"] == "error"


def test_a_module_that_only_depends_on_nvidia_is_not_nvidia(workstation):
    write(
        workstation,
        f"/lib/modules/{NEW}/modules.dep",
        "extra/gdrdrv.ko: extra/nvidia.ko kernel/nvidia.ko\n",
    )
    assert facts(workstation, "kernel")["installed"][0]["nvidia_module"] == ""


def test_the_default_entry_leads_to_a_kernel_release(workstation):
    boot = facts(workstation, "kernel")["boot"]
    assert boot["loader"] == "grub"
    assert boot["default_entry"] == "0"
    assert boot["default_release"] == NEW


def test_a_pending_one_shot_entry_on_lvm_cannot_be_cleared_by_grub(workstation):
    boot = facts(workstation, "kernel")["boot"]
    assert boot["one_shot_pending"] is True
    assert boot["one_shot_entry"].endswith(OLD + "-advanced-1111")
    assert boot["can_clear_one_shot"] is False
    assert "/dev/mapper/vg0-root" in boot["why_not"]


@pytest.mark.parametrize(
    ("mount", "can_clear"),
    [
        ("25 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw", True),
        ("25 1 259:2 / / rw - xfs /dev/sda2 rw", True),
        ("25 1 9:0 / / rw - ext4 /dev/md0 rw", False),
        ("25 1 0:21 / / rw - zfs rpool/ROOT rw", False),
        ("25 1 0:21 /@ / rw - btrfs /dev/sda2 rw", False),
        ("25 1 0:21 / / rw - overlay overlay rw", False),
        ("25 1 253:0 / / rw - ext4 /dev/root rw", False),
        (
            (
                "25 1 253:0 / / rw - ext4 /dev/mapper/vg0-root rw\n26 25 259:1 / /boot rw - ext4"
                " /dev/nvme0n1p1 rw"
            ),
            True,
        ),
        ("", None),
    ],
)
def test_grub_clears_a_one_shot_entry_only_on_a_plain_partition(workstation, mount, can_clear):
    write(workstation, "/proc/self/mountinfo", mount)
    assert facts(workstation, "kernel")["boot"]["can_clear_one_shot"] is can_clear


def test_without_an_environment_block_grub_cannot_clear_anything(workstation):
    (workstation / "boot/grub/grubenv").unlink()
    boot = facts(workstation, "kernel")["boot"]
    assert boot["one_shot_pending"] is False
    assert boot["can_clear_one_shot"] is False


def test_a_reboot_is_asked_for_with_each_reason(workstation):
    kernel = facts(workstation, "kernel")
    assert kernel["reboot_required"] is True
    assert kernel["reboot_reasons"] == [
        "/run/reboot-required: linux-base linux-image-5.4.0-190-generic",
        f"running {OLD}, the default boot entry starts {NEW}",
        f"a one-shot boot entry waits: gnulinux-advanced-1111>gnulinux-{OLD}-advanced-1111",
    ]


def test_a_saved_entry_with_boot_loader_entries_is_resolved(rocky):
    kernel = facts(rocky, "kernel")
    assert kernel["boot"]["default_release"] == "5.14.0-427.13.1.el9_4.x86_64"
    assert kernel["boot"]["can_clear_one_shot"] is True
    assert kernel["reboot_required"] is False
    assert kernel["reboot_reasons"] == []
    assert [row["release"] for row in kernel["installed"]] == [
        "5.14.0-427.13.1.el9_4.x86_64",
        "5.14.0-362.8.1.el9_3.x86_64",
    ]


def test_a_default_that_points_to_an_older_kernel_is_a_reason_to_look(rocky):
    write(rocky, "/boot/grub2/grubenv", "saved_entry=1\n")
    kernel = facts(rocky, "kernel")
    assert kernel["boot"]["default_release"] == "5.14.0-362.8.1.el9_3.x86_64"
    assert kernel["reboot_required"] is True


def test_systemd_boot_is_known_by_its_variable_and_clears_its_own_one_shot_entry(rocky):
    write(
        rocky, EFIVAR.format("LoaderInfo"), b"\x06\0\0\0" + "systemd-boot 255".encode("utf-16-le")
    )
    write(
        rocky,
        EFIVAR.format("LoaderEntryOneShot"),
        b"\x07\0\0\0" + "test.conf\0".encode("utf-16-le"),
    )
    write(rocky, "/boot/loader/loader.conf", "default *-362*\ntimeout 3\n")
    boot = facts(rocky, "kernel")["boot"]
    assert boot["loader"] == "systemd-boot"
    assert boot["one_shot_entry"] == "test.conf"
    assert boot["can_clear_one_shot"] is True
    assert boot["default_release"] == "5.14.0-362.8.1.el9_3.x86_64"


def test_a_container_does_not_speak_of_its_nodes_kernels(tmp_path):
    folder = copied("container", tmp_path)
    kernel = facts(folder, "kernel")
    assert kernel["release"] == "5.15.0-105-generic"
    assert [kernel[field] for field in ("installed", "dkms", "boot", "reboot_required")] == [
        None
    ] * 4
    assert unread(folder, "kernel")["installed"]["status"] == "absent"


def test_a_kernel_built_without_modules_has_none(tmp_path):
    folder = copied("h200x8", tmp_path)
    (folder / "proc/modules").unlink()
    assert facts(folder, "kernel")["modules"] is None
    (folder / "proc/sys/kernel/modprobe").unlink()
    assert facts(folder, "kernel")["modules"] == []


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("nvidia 56377344 610 nvidia_uvm, Live 0x0000000000000000 (POE)", ("nvidia", 610, "POE")),
        ("ext4 1 - - Live 0x0", ("ext4", None, "")),
        ("nvidia", None),
        ("", None),
    ],
)
def test_module_lines(line, row):
    assert parse_module_line(line) == row


def test_titles_ids_and_numbers_all_pick_an_entry():
    menu = parse_menu(
        "menuentry 'A' --id a {\n linux /vmlinuz-1\n}\nsubmenu \"B\" {\n menuentry 'C' {\n linux16"
        " /boot/vmlinuz-2-x root=y\n }\n}\n"
    )
    for choice, kernel in (
        ("0", "/vmlinuz-1"),
        ("a", "/vmlinuz-1"),
        ("A", "/vmlinuz-1"),
        ("1>0", "/boot/vmlinuz-2-x"),
        ("B>C", "/boot/vmlinuz-2-x"),
        ("1", "/boot/vmlinuz-2-x"),
    ):
        assert find_entry(menu, choice).kernel == kernel
    for choice in ("2", "D", "1>7", "a>b", "99999999999"):
        assert find_entry(menu, choice) is None


def test_the_one_shot_branch_is_not_the_default():
    assert parse_default('set default="${next_entry}"\nset default="${saved_entry}"\n') == "saved"
    assert parse_default('set default="${saved_entry}"\nset default="${next_entry}"\n') == "saved"
    assert parse_default('  set default="2"\n') == "2"
    assert parse_default("set timeout=5\n") is None


@pytest.mark.parametrize(
    ("path", "release"),
    [
        ("/boot/vmlinuz-6.1.0-9-amd64", "6.1.0-9-amd64"),
        ("/vmlinuz", None),
        (None, None),
        ("/boot/vmlinuz-", None),
    ],
)
def test_an_images_name_holds_its_release(path, release):
    assert release_of_image(path) == release


def test_a_menu_nested_without_end_is_survived():
    assert parse_menu("submenu 'x' {\n" * 5000) == []
    assert find_entry(parse_menu("submenu 'x' {\n" * 3000 + "}\n" * 3000), "0") is None


def test_a_machine_without_a_boot_loader_says_so_for_what_only_one_could_tell(tmp_path):
    unread = Unread()
    boot = read_boot(Root([str(tmp_path)]), unread, [])
    assert (boot["loader"], boot["one_shot_pending"], boot["default_release"]) == (
        "none",
        False,
        None,
    )
    assert {row["field"]: row["status"] for row in unread.rows} == dict.fromkeys(
        ("boot.default_entry", "boot.default_release", "boot.can_clear_one_shot"), "absent"
    )
