"""No key and no password leaves a node's kernel command line: in facts, in evidence, and in
differences of the boot loader's files."""

from __future__ import annotations

import pytest

from unhang_node.base.parse.command_line import without_secrets
from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.change.config.masking import masked_diff
from unhang_node.facts.sections.kernel import read_cmdline
from unhang_node.facts.sections.node import read_node

MASKED = {
    "luks.key=abc": "luks.key=***",
    "rd.luks.key=/dev/disk/by-id/x:abc": "rd.luks.key=***",
    'rd.luks.key="two words"': "rd.luks.key=***",
    '"luks.key=two words"': "luks.key=***",
    "cryptkey=rootfs:/key": "cryptkey=***",
    "inst.repo=http://me:pw@10.0.0.1/repo": "inst.repo=http://***@10.0.0.1/repo",
    "inst.repo=http://me:p/w@10.0.0.1/repo": "inst.repo=http://***@10.0.0.1/repo",
    "netroot=iscsi:me:pw:other:pw2@10.0.0.1::3260::iqn.x": (
        "netroot=iscsi:***@10.0.0.1::3260::iqn.x"
    ),
    "rd.iscsi.password=pw": "rd.iscsi.password=***",
    "systemd.set_credential=a:b": "systemd.set_credential=***",
    "systemd.setenv=PGPASSWORD=pw": "systemd.setenv=PGPASSWORD=***",
    "rootflags=username=me,password=pw,vers=3": "rootflags=username=me,password=***,vers=3",
    "ignition.config.url=https://host/x?sig=abc&se=1": "ignition.config.url=https://host/x?***",
    "ds=nocloud;s=http://me:pw@host/;api_key=x": "ds=nocloud;s=http://***@host/;api_key=***",
    "console.passphrase=x": "console.passphrase=***",
    "luks.pin=1234": "luks.pin=***",
    "quiet -- --token abc --verbose": "quiet -- --token *** --verbose",
}
SAME = [
    (
        "BOOT_IMAGE=/boot/vmlinuz-6.8.0-1008-nvidia root=UUID=5e1b ro quiet splash iommu=pt"
        " iommu.passthrough=1 keymap=us"
    ),
    (
        "crashkernel=512M-2G:64M,2G-:128M@16M memmap=4G@4G pci=resource_alignment=20@0000:01:00.0"
        " isolcpus=managed_irq,domain,0-3"
    ),
    (
        'dyndbg="file drivers/usb/* +p" console=ttyS0,115200n8 init=/sbin/init'
        " ip=10.0.0.2::10.0.0.1:255.255.255.0:gpu001:eth0:off"
    ),
    (
        "module_blacklist=nouveau modprobe.blacklist=nouveau,nova"
        " systemd.unified_cgroup_hierarchy=1  two  blanks mitigations=auto,nosmt"
    ),
]


@pytest.mark.parametrize(("line", "shown"), MASKED.items(), ids=MASKED)
def test_no_key_leaves_the_nodes_command_line(line, shown):
    assert without_secrets(line) == shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize("line", SAME)
def test_what_is_no_secret_stays(line):
    assert without_secrets(line) == line


def test_the_facts_hold_no_secret_of_the_command_line(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cmdline").write_text(
        'root=live:http://me:hunter2@host/x rd.luks.key="hunter2 hunter2"\n'
    )
    root = Root([str(tmp_path)])
    assert read_cmdline(root) == "root=live:http://***@host/x rd.luks.key=***"
    assert "hunter2" not in str(read_node(root, Unread(), 0.0))


@pytest.mark.parametrize(
    "path", ["/etc/default/grub", "/etc/kernel/cmdline", "/boot/loader/entries/x.conf"]
)
def test_a_difference_of_a_file_of_the_boot_loader_holds_no_key(path):
    line = 'GRUB_CMDLINE_LINUX="rd.luks.key=hunter2 {}"'
    diff = masked_diff(line.format("iommu=pt"), line.format(""), path)
    assert "hunter2" not in str(diff)
    assert "iommu=pt" in diff["before"] and "iommu=pt" not in diff["after"]
