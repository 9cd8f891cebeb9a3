"""Lines of GRUB's menu for this system's kernels, which get a parameter or are started: only those
that grub-mkconfig makes."""

from __future__ import annotations

import pytest
from fakes.boot_tree import NEW, OLD, entry_id, grub_cfg
from fakes.node_tree import plant

from unhang_node.change.boot.entries import entry_of_release
from unhang_node.change.boot.parameters import missing_in_menu

MEMTEST = "menuentry 'Memory test (memtest86+x64.bin)' {\n\tlinux\t/boot/memtest86+x64.bin\n}\n"
OLD_MEMTEST = 'menuentry "Memory test (memtest86+)" {\n\tlinux16\t/boot/memtest86+.bin\n}\n'
OTHER = (
    "menuentry 'Ubuntu 20.04 (on /dev/sdb2)' --class ubuntu $menuentry_id_option"
    f" 'osprober-gnulinux-{OLD}-1' {{\n\tlinux /boot/vmlinuz-{OLD} root=/dev/sdb2\n}}\n"
)
CUSTOM = f"menuentry 'rescue of the site' {{\n\tlinux /boot/vmlinuz-{OLD} root=/dev/sda1\n}}\n"


def missing(folder, text):
    plant(folder, {"/boot/grub/grub.cfg": text})
    return missing_in_menu(str(folder), ["iommu=pt"])


@pytest.mark.parametrize(
    "more",
    ["", MEMTEST, OLD_MEMTEST, OTHER, CUSTOM],
    ids=["none", "memtest", "old memtest", "other system", "own entry"],
)
def test_entries_that_no_parameter_reaches_do_not_count(tmp_path, more):
    assert missing(tmp_path, grub_cfg([NEW, OLD], options="quiet iommu=pt") + more) == 0


@pytest.mark.parametrize("more", ["", MEMTEST, OTHER], ids=["none", "memtest", "other system"])
def test_each_kernel_line_of_the_system_that_lacks_it_counts(tmp_path, more):
    # the default entry, and one of each kernel
    assert missing(tmp_path, grub_cfg([NEW, OLD]) + more) == 3


def test_a_menu_whose_entries_have_no_names_of_ours_counts_all_kernels(tmp_path):
    assert missing(tmp_path, CUSTOM + MEMTEST) == 1


def test_a_kernel_of_the_same_release_on_another_systems_disk_is_no_entry_of_this_one():
    assert entry_of_release(OTHER, OLD) is None
    assert entry_of_release(grub_cfg([NEW, OLD]) + OTHER, OLD) == entry_id(OLD)
