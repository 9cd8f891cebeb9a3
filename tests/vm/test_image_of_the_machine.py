"""Which kernels the image contains, and when it is built again."""

from __future__ import annotations

import pytest
from machine.image import ImageError, newest_three, recipe_key

LISTED = """linux-image-6.1.0-9-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-56-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-56-cloud-amd64-dbg - Debug symbols
linux-image-6.1.0-47-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-55-amd64 - Linux 6.1 for 64-bit PCs (signed)
linux-image-6.1.0-50-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
"""


def test_the_three_newest_kernels_of_the_archive_are_taken_by_number():
    assert newest_three(LISTED) == (
        "6.1.0-47-cloud-amd64",
        "6.1.0-50-cloud-amd64",
        "6.1.0-56-cloud-amd64",
    )


def test_an_index_with_too_few_kernels_says_so():
    with pytest.raises(ImageError, match="expected three kernels"):
        newest_three(LISTED.splitlines()[1])


def test_another_kernel_is_another_image():
    assert recipe_key("a", "b", "c") == recipe_key("a", "b", "c")
    assert recipe_key("a", "b", "c") != recipe_key("a", "b", "d")
