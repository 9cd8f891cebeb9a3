"""dpkg's status file and the order of Debian's versions."""

from __future__ import annotations

import functools
import shutil
import subprocess

import pytest
from fakes.node_tree import dpkg_status
from hypothesis import given
from hypothesis import strategies as st

from unhang_node.base.parse.dpkg import parse_status
from unhang_node.base.versions.packages import deb_version_key

NAMES = st.from_regex(r"\A[a-z0-9][a-z0-9.+-]{1,20}\Z")
STATES = st.sampled_from(
    [
        "install ok installed",
        "hold ok installed",
        "deinstall ok config-files",
        "install ok half-configured",
        "install reinstreq unpacked",
    ]
)


def test_only_wanted_packages_are_listed_sorted_by_name():
    text = dpkg_status(
        {
            "nvidia-driver-535": "535.161.08-0ubuntu2",
            "libnccl2": "2.21.5-1+cuda12.4",
            "bash": "5.2",
        },
        filler=50,
    )
    database = parse_status(text.encode(), ("nvidia", "libnccl"))
    assert [
        (package.name, package.version, package.architecture) for package in database.packages
    ] == [
        ("libnccl2", "2.21.5-1+cuda12.4", "amd64"),
        ("nvidia-driver-535", "535.161.08-0ubuntu2", "amd64"),
    ]


@pytest.mark.parametrize(
    ("status_words", "listed", "held", "unfinished"),
    [
        ("install ok installed", True, False, False),
        ("hold ok installed", True, True, False),
        ("hold ok config-files", False, False, False),
        ("deinstall ok config-files", False, False, False),
        ("deinstall ok installed", True, False, False),
        ("install ok half-configured", True, False, True),
        ("install ok unpacked", True, False, True),
        ("install reinstreq half-installed", True, False, True),
        ("install ok triggers-pending", True, False, True),
    ],
)
def test_status_words_tell_held_and_unfinished(status_words, listed, held, unfinished):
    database = parse_status(
        dpkg_status({"nvidia-dkms-535": (status_words, "535.161.08")}).encode(), ("nvidia",)
    )
    assert bool(database.packages) is listed
    assert (database.holds == ("nvidia-dkms-535",)) is held
    assert (database.unfinished == ("nvidia-dkms-535",)) is unfinished


def test_holds_and_unfinished_packages_are_reported_whatever_their_name():
    text = dpkg_status(
        {
            "vim": ("hold ok installed", "9"),
            "mdadm": ("install ok half-configured", "4"),
            "nvidia-x": "1",
        },
        filler=3,
    )
    database = parse_status(text.encode(), ("nvidia",))
    assert (database.holds, database.unfinished) == (("vim",), ("mdadm",))


def test_stanza_that_does_not_begin_with_its_name_is_read():
    database = parse_status(
        b"Status: install ok installed\nVersion: 1\nPackage: nvidia-x\nArchitecture: all\n\n",
        ("nvidia",),
    )
    assert [package.name for package in database.packages] == ["nvidia-x"]


@pytest.mark.slow
@given(
    st.dictionaries(
        NAMES, st.tuples(STATES, st.from_regex(r"\A[0-9][0-9.]{0,8}(-[0-9]{1,3})?\Z")), max_size=30
    ),
    st.integers(0, 20),
)
def test_any_status_file_is_reported_as_it_was_written(packages, filler):
    database = parse_status(dpkg_status(packages, filler).encode(), ("",))
    listed = {
        package.name: package.version
        for package in database.packages
        if not (package.name.startswith("aaa") and package.version.startswith("1."))
    }
    expected = {
        name: version
        for name, (words, version) in packages.items()
        if not words.endswith("config-files")
    }
    assert {
        name: version
        for name, version in expected.items()
        if not (name.startswith("aaa") and version.startswith("1."))
    } == listed
    assert set(database.holds) == {
        name for name, (words, _version) in packages.items() if words.startswith("hold")
    }


@given(st.binary(max_size=400))
def test_rubbish_is_never_an_exception(content):
    database = parse_status(content, ("nvidia", ""))
    assert all(isinstance(name, str) and name for name in database.holds)


VERSIONS = [
    "1",
    "1~rc1",
    "1-1",
    "1+b1",
    "1:0.5",
    "1.10",
    "1.9",
    "0",
    "1.0a",
    "1.0-1ubuntu2",
    "535.161.08-0ubuntu2",
    "535.161.08-0ubuntu2.22.04.1",
]
VERSIONS += [
    "535.183.01-0ubuntu0.22.04.1",
    "2.21.5-1+cuda12.4",
    "2.21.5-1+cuda11.8",
    "6.8.0-1008.8",
    "6.8.0-45.45~22.04.1",
    "0:1",
    "1.",
    "1-~",
    "a1",
    "1..2",
]


@functools.cache
def dpkg_says_lower(first, second):
    return (
        subprocess.run(
            [shutil.which("dpkg"), "--compare-versions", first, "lt", second], capture_output=True
        ).returncode
        == 0
    )


@pytest.mark.parametrize("first", VERSIONS[:-2])
def test_versions_are_ordered_as_dpkg_orders_them(first):
    if not shutil.which("dpkg"):
        pytest.fail("this test compares with dpkg: run it on Debian or Ubuntu")
    for second in VERSIONS[:-2]:
        assert (deb_version_key(first) < deb_version_key(second)) == dpkg_says_lower(
            first, second
        ), (first, second)


@pytest.mark.slow
@given(
    st.lists(
        st.from_regex(r"\A([0-9]:)?[0-9a-z.+~]{1,8}(-[0-9a-z.+~]{1,5})?\Z"), min_size=3, max_size=3
    )
)
def test_order_of_versions_is_total(versions):
    first, second, third = sorted(versions, key=deb_version_key)
    assert deb_version_key(first) <= deb_version_key(second) <= deb_version_key(third)
    assert deb_version_key(first) <= deb_version_key(third)
