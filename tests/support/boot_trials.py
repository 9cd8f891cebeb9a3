"""The module boot_trial on a planted node, and what the node boots then."""

from __future__ import annotations

from fakes.ansible_module import run_module
from fakes.boot_tree import NEW, grubenv, running_files
from fakes.node_tree import plant

from unhang_node.base.mount_table import read_mounts
from unhang_node.base.parse.grub import parse_grubenv
from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.facts.sections.boot import read_boot

GPUS = ["GPU-0", "GPU-1"]


def call(node, state, check=False, **options):
    return run_module("boot_trial", check=check, state=state, rootfs=str(node), **options)


def arm(node, **options):
    call(node, "prepared")
    return call(node, "armed", release=NEW, gpus=GPUS, **options)


def environment(node):
    return parse_grubenv((node / "boot/grub/grubenv").read_bytes())


def boots(node):
    """(release of an ordinary boot, entry of the next boot alone), as the audit reads them."""
    root = Root([str(node)])
    facts = read_boot(root, Unread(), read_mounts(root))
    return facts["default_release"], facts["one_shot_entry"]


def started(node, release, boot="boot-2"):
    """The node after a boot: GRUB has cleared the one-shot entry."""
    values = {name: value for name, value in environment(node).items() if name != "next_entry"}
    plant(node, {**running_files(release, boot), "/boot/grub/grubenv": grubenv(**values)})
