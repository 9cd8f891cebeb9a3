"""Each known fault of a kernel release is found under the release that began to have it, and not
under the one that mends it or another build."""

from __future__ import annotations

import pytest
from changed_nodes import changed, words_of
from healthy_platforms import PLATFORMS

from unhang.core.catalogue.own_tables import table

ROWS = table("kernel_issues")


def is_found(release, row):
    """Whether the fault of a row is found on a healthy node whose kernel is of this release."""
    node = changed(PLATFORMS["h100_infiniband"](), {"facts": {"kernel.release": release}})
    return any(row["says"] in text for text in words_of(node, "kernel-release-has-fault"))


@pytest.mark.parametrize("key", ROWS)
def test_fault_of_a_kernel_is_found_from_its_first_release_until_the_repair_and_of_its_build_alone(
    key,
):
    row = ROWS[key]
    assert is_found(row["from"] + row["build"], row)
    assert not is_found(row["below"] + row["build"], row)
    assert not is_found(row["from"] + "-generic", row)
