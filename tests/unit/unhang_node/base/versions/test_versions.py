"""Typed versions: each order by examples, by its laws, and against the tool that owns it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import InvalidVersion, Version

from unhang_node.base.versions.compare import (
    OPERATORS,
    ORDERS,
    check_version,
    compare_versions,
    holds,
)
from unhang_node.base.versions.packages import deb_version_key, rpm_version_key
from unhang_node.base.versions.python_order import pep_440_key

LESS = [
    ("driver", "535.154.05", "545.23.08"),
    ("driver", "535.54", "535.154.05"),
    ("driver", "99.1", "535.1"),
    ("kernel", "5.4.0-150-generic", "5.5.0"),
    ("kernel", "5.4.0-150", "5.4.0-169-generic"),
    ("kernel", "6.8.0-45-generic", "6.8.0-101-generic"),
    ("kernel", "6.8.0-1008-nvidia", "6.11.0-8-generic"),
    ("kernel", "6.10-rc3", "6.10"),
    ("kernel", "5.14.0-427.el9.x86_64", "5.14.0-503.11.1.el9_5.x86_64"),
    ("kernel", "6.1.0-47-amd64", "6.12.8+bpo-amd64"),
    ("nccl", "2.9.6", "2.21.5+cuda12.4"),
    ("nccl", "2804", "2.9"),
    ("nccl", "22105", "2.22.3-1"),
    ("cuda", "12.4", "12.10"),
    ("cuda", "11080", "12.0"),
    ("cuda", "12.4", "12.4.131"),
    ("vbios", "96.00.9f.00.1a", "96.00.A5.00.01"),
    ("deb", "1.0~rc1", "1.0"),
    ("deb", "1:0.1", "2:0.0"),
    ("deb", "535.161.07-0ubuntu0.22.04.1", "535.183.01-0ubuntu0.22.04.1"),
    ("rpm", "1.0~rc1-1", "1.0-1"),
    ("rpm", "2.27.3-1", "2.27.10-1"),
    ("rpm", "1.0", "1.0^git1"),
    ("rpm", "9", "1:1"),
    ("rpm", "535.86-10", "535.86.05-1"),
    ("rpm", "1.0^git1", "1.0.1"),
    ("rpm", "9" * 200, "1" + "0" * 200),
    ("generic", "2.0.dev1", "2.0"),
    ("generic", "20.30.1004", "22.31.2006"),
]
EQUAL = [
    ("driver", "545.23.08", "545.23.8"),
    ("kernel", "6.8.0-45-generic", "6.8.0-45-generic"),
    ("kernel", "6.8.0", "6.8"),
    ("nccl", "2.21.5+cuda12.4", "22105"),
    ("nccl", "2.21.5-1+cuda12.4", "2.21.5"),
    ("cuda", "12040", "12.4"),
    ("cuda", "12.4.0", "V12.4"),
    ("vbios", "96.00.a5.00.1a", "96.0.A5.0.1A"),
    ("deb", "0:1.0-1", "1.0-1"),
    ("rpm", "1.0", "1.0-3"),
    ("generic", "2.5.0", "2.5"),
]


@pytest.mark.parametrize(("order", "left", "right"), LESS)
def test_the_older_version_is_less_and_the_newer_greater(order, left, right):
    assert compare_versions(left, right, order).sign == -1
    assert compare_versions(right, left, order).sign == 1


@pytest.mark.parametrize(("order", "left", "right"), EQUAL)
def test_two_spellings_of_one_version_are_equal(order, left, right):
    assert compare_versions(left, right, order).sign == 0
    assert holds(compare_versions(left, right, order), "==") is True


@pytest.mark.parametrize(
    ("left", "right", "order", "why"),
    [
        ("6.8.0-1008-nvidia", "6.8.0-45-generic", "kernel", "flavour"),
        ("540.4.0", "560.28.03", "driver", "JetPack"),
        ("580.65.06", "580.00", "driver", "JetPack"),
    ],
)
def test_versions_of_two_families_have_no_order_but_differ(left, right, order, why):
    found = compare_versions(left, right, order)
    assert found.sign is None
    assert holds(found, "==") is False
    assert holds(found, "!=") is True
    assert holds(found, ">=") is None
    assert why in found.reason


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "text",
    ["", "{{ 7*7 }}", "not a version", "1.2\x1b[31m", None, True, 1.5, [], "9" * 400, "-1", "é"],
)
def test_what_is_no_version_has_a_reason_instead_of_an_order(order, text):
    assert check_version(text, order)
    assert compare_versions(text, "1.2.3", order).sign is None
    assert compare_versions("1.2.3", text, order).reason


@pytest.mark.slow
@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(sorted(ORDERS)))
def test_no_text_makes_a_comparison_raise(left, right, order):
    found = compare_versions(left, right, order)
    assert (found.sign is None) == bool(found.reason)


def fields(most, width=3):
    return st.lists(st.integers(0, most), min_size=width, max_size=width + 1).map(
        lambda one: ".".join(map(str, one))
    )


TEXTS = {
    "driver": fields(600),
    "kernel": (
        st.tuples(fields(20, 2), st.sampled_from(["", "-45-generic", "-101-generic", "-9"])).map(
            "".join
        )
    ),
    "nccl": st.tuples(fields(40), st.sampled_from(["", "+cuda12.4", "-1"])).map("".join),
    "cuda": fields(30, 2),
    "vbios": (
        st.lists(st.integers(0, 255), min_size=5, max_size=5).map(
            lambda one: ".".join(f"{field:02x}" for field in one)
        )
    ),
    "deb": st.from_regex(r"\A([0-9]:)?[0-9][a-z0-9.+~]{0,6}(-[a-z0-9.+~]{1,4})?\Z"),
    "rpm": st.from_regex(r"\A([0-9]:)?[0-9][a-z0-9.~^]{0,6}(-[a-z0-9]{1,4})\Z"),
    "generic": fields(9),
}


@given(st.data(), st.sampled_from(sorted(TEXTS)))
def test_an_order_is_antisymmetric_and_transitive(data, order):
    one, two, three = (data.draw(TEXTS[order]) for _ in range(3))
    forth, back = compare_versions(one, two, order), compare_versions(two, one, order)
    assert forth.sign is not None
    assert back.sign is not None
    assert forth.sign == -back.sign
    assert compare_versions(one, one, order).sign == 0
    if forth.sign <= 0 and (compare_versions(two, three, order).sign or 0) <= 0:
        assert (compare_versions(one, three, order).sign or 0) <= 0


@given(st.data(), st.sampled_from(sorted(TEXTS)))
def test_the_operators_agree_with_the_sign(data, order):
    found = compare_versions(data.draw(TEXTS[order]), data.draw(TEXTS[order]), order)
    true = {OPERATORS[name] for name in OPERATORS if holds(found, name)}
    assert true == {-1: {"<", "<=", "!="}, 0: {"==", "<=", ">="}, 1: {">", ">=", "!="}}[found.sign]


DEB_SAMPLES = [
    "1.0", "1.0-1", "1.0~rc1", "1.0+b1", "1.0a", "1.0.1", "1:1.0", "0:1.0", "1.0-1~bpo12+1",
    "1.0-1+deb12u1", "535.161.07-0ubuntu0.22.04.1",
    "535.183.01-0ubuntu0.22.04.1", "2.21.5-1+cuda12.4", "2.21.5-1+cuda12.10", "550.163.01-2",
    "1.00", "1.0-0", "1.0~~", "1.0~", "12.4.1-1", "9", "10",
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(DEB_SAMPLES)))
def test_debian_versions_are_ordered_as_dpkg_orders_them(place):
    """dpkg compares each pair in both directions; when neither is less, they are equal."""
    left = DEB_SAMPLES[place]
    for right in DEB_SAMPLES[place:]:
        less, greater = dpkg_finds_less(left, right), dpkg_finds_less(right, left)
        theirs = {"<": less, "==": not less and not greater, ">": greater}
        forth, back = compare_versions(left, right, "deb"), compare_versions(right, left, "deb")
        assert {one: holds(forth, one) for one in theirs} == theirs, (left, right)
        assert {one: holds(back, one) for one in theirs} == {
            "<": greater,
            "==": theirs["=="],
            ">": less,
        }, (right, left)


def dpkg_finds_less(left, right):
    dpkg = shutil.which("dpkg")
    assert dpkg, "install dpkg: it is the measure of this order"
    return (
        subprocess.run([dpkg, "--compare-versions", left, "lt", right], check=False).returncode == 0
    )


PYTHON_SAMPLES = st.from_regex(
    r"\Av?([0-9]!)?[0-9]{1,3}(\.[0-9]{1,2}){0,3}([-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?[0-9]?)?(-[0-9]|[-_.]?(post|rev|r)[-_.]?[0-9]?)?"
    r"([-_.]?dev[-_.]?[0-9]?)?(\+[a-z0-9]{1,4}([-_.][a-z0-9]{1,3})?)?\Z"
)


@given(PYTHON_SAMPLES, PYTHON_SAMPLES)
def test_versions_of_python_packages_are_ordered_as_the_packaging_library_orders_them(left, right):
    theirs = (Version(left) > Version(right)) - (Version(left) < Version(right))
    assert compare_versions(left, right, "generic").sign == theirs


@given(st.from_regex(r"\A[0-9a-z.+!_-]{1,12}\Z"))
def test_what_is_a_version_of_a_python_package_agrees_with_the_packaging_library(text):
    try:
        Version(text)
        valid = True
    except InvalidVersion:
        valid = False
    assert (pep_440_key(text) is not None) == valid


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_has_a_key_that_sorts(left, right):
    for key in (deb_version_key, rpm_version_key):
        assert (key(left) < key(right)) + (key(left) == key(right)) + (key(left) > key(right)) == 1


def test_a_number_too_long_for_python_has_its_place():
    assert deb_version_key("9" * 5000) < deb_version_key("1" + "0" * 5000)
    assert rpm_version_key("9" * 5000 + "-1") < rpm_version_key("1" + "0" * 5000 + "-1")
