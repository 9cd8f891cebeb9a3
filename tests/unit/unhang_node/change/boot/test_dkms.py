"""DKMS's folders and build logs, prepared in the layout of DKMS 3.0 and 3.2."""

from __future__ import annotations

import pytest
from fakes.node_tree import Link, plant

from unhang_node.change.boot.dkms_builds import parse_make_log, read_builds, why_not_built

MODULE, VERSION = "nvidia-current", "535.261.03"
BASE = f"/var/lib/dkms/{MODULE}/{VERSION}"
HEAD = (
    f"DKMS make.log for {MODULE}-{VERSION} for kernel 6.12.95+deb12-amd64 (x86_64)\nFri Nov 20"
    " 07:00:00 UTC 2026\n"
)
ERROR = "nvidia/nv.c:12:9: error: implicit declaration of function 'follow_pfn'"
COMPILER = (
    HEAD
    + f"make[1]: Entering directory '/usr/src'\n  CC [M]  nv.o\n{ERROR}\nmake: *** [x] Error 2\n"
)


def installed(kernel):
    """Files of a module that is built and installed for a kernel."""
    return {
        f"{BASE}/{kernel}/x86_64/module/{MODULE}.ko": "",
        f"/lib/modules/{kernel}/updates/dkms/{MODULE}.ko.xz": "",
    }


def states(root):
    return [(build.kernel, build.state) for build in read_builds(root)]


def test_each_state_of_a_build_is_told_apart(tmp_path):
    root = plant(tmp_path, {f"{BASE}/source": Link("/usr/src/nvidia-current-535.261.03")})
    assert states(root) == [(None, "added")]
    plant(
        tmp_path,
        {
            **installed("6.1.0-50-amd64"),
            f"{BASE}/6.1.0-47-amd64/x86_64/module/{MODULE}.ko": "",
            f"{BASE}/build/make.log": COMPILER,
        },
    )
    plant(
        tmp_path,
        {
            f"/var/lib/dkms/{MODULE}/kernel-6.1.0-50-amd64-x86_64": Link(
                f"{VERSION}/6.1.0-50-amd64/x86_64"
            )
        },
    )
    assert states(root) == [
        ("6.1.0-47-amd64", "built"),
        ("6.1.0-50-amd64", "installed"),
        ("6.12.95+deb12-amd64", "failed"),
    ]


def test_a_log_of_a_kernel_that_was_built_in_the_end_is_no_failure(tmp_path):
    root = plant(tmp_path, {**installed("6.12.95+deb12-amd64"), f"{BASE}/build/make.log": COMPILER})
    assert states(root) == [("6.12.95+deb12-amd64", "installed")]


def test_why_a_module_is_not_there_is_one_line_with_the_line_of_the_log(tmp_path):
    root = plant(tmp_path, {**installed("6.1.0-50-amd64"), f"{BASE}/build/make.log": COMPILER})
    builds = read_builds(root)
    assert why_not_built(builds, "nvidia*", "6.1.0-50-amd64") == ""
    assert why_not_built(builds, "nvidia*", "6.1.0-50-amd64", "550.1").startswith(
        "DKMS has not built nvidia* 550.1 for kernel 6.1.0-50-amd64"
    )
    shown = why_not_built(builds, "nvidia*", "6.12.95+deb12-amd64")
    assert (
        shown == f"{MODULE} {VERSION} does not build for kernel 6.12.95+deb12-amd64: {ERROR}"
        f" ({BASE}/build/make.log line 5)"
    )
    assert "are the kernel's headers installed" in why_not_built(
        builds, "nvidia*", "6.1.0-47-amd64"
    )
    assert "DKMS knows no such module" in why_not_built([], "nvidia*", "6.1.0-47-amd64")


@pytest.mark.parametrize(
    ("text", "number", "line"),
    [
        (COMPILER, 5, ERROR),
        (
            HEAD
            + "ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol\nmake: ***"
            " [y] Error 1\n",
            3,
            None,
        ),
        (
            HEAD + "conftest.sh: line 2: gcc-12: not found\nmake[2]: *** [Makefile:1] Error 127\n",
            4,
            "make[2]: *** [Makefile:1] Error 127",
        ),
        (
            HEAD
            + "  CC [M]  nv.o\nfatal error: error writing to /tmp/x.s: No space left on device\n",
            4,
            None,
        ),
        (HEAD + "  CC [M]  nv.o\n", 3, "CC [M] nv.o"),
        ("", 0, ""),
    ],
)
def test_the_line_that_says_why_a_build_failed_is_found(text, number, line):
    shown = parse_make_log(text)
    assert shown.number == number
    if line is not None:
        assert shown.line == line
    assert shown.kernel == ("6.12.95+deb12-amd64" if text else None)
