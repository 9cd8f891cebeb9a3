"""The role kernel on a real machine under emulation, without permission to reboot."""

from __future__ import annotations


def test_without_a_word_the_kernel_is_installed_and_neither_booted_nor_the_default(
    image, installation
):
    found = installation[0]
    assert found["code"] == 0
    assert "is installed and does not boot by itself" in found["output"]
    assert f"vmlinuz-{image.new}" in found["kernels"]
    # built by DKMS for the kernel that is to boot
    assert f"vmtest/1.0, {image.new}" in found["kernels"]
    assert image.old in found["boots"]["saved_entry"]
    assert "next_entry" not in found["boots"]
