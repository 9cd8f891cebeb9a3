"""Which package of libnccl a node gets, as a table."""

from __future__ import annotations

import pytest

from unhang.act.role_changes.nccl_library import plan_library

OLD, NEW, NEWER, OTHER_CUDA = (
    "2.21.5-1+cuda12.4",
    "2.26.5-1+cuda12.9",
    "2.29.7-1+cuda12.9",
    "2.26.5-1+cuda13.0",
)
OFFERED = [NEWER, OTHER_CUDA, NEW, OLD]


def plan(nccl, installed=(OLD,), offered=OFFERED, headers=None, libraries=()):
    packages = [{"name": "libnccl2", "version": version} for version in installed]
    packages += [{"name": "libnccl-dev", "version": OLD}] if headers is not None else []
    offers = {
        name: [{"version": version} for version in versions or ()]
        for name, versions in (("libnccl2", offered), ("libnccl-dev", headers))
    }
    return plan_library({"nccl": nccl}, libraries, packages, None if offered is None else offers)


@pytest.mark.parametrize(
    ("nccl", "installed", "expected"),
    [
        ({"version": "2.26.5"}, OLD, NEW),
        ({"version": "2.21.5"}, NEW, OLD),
        ({"version": "2.21.5"}, OLD, None),
        ({"min": "2.22.3"}, OLD, NEW),
        ({"min": "2.27"}, OLD, NEWER),
        ({"min": "2.21.5"}, OLD, None),
        ({"min": "2.22.3"}, "2.21.5-1+cuda13.0", OTHER_CUDA),
        ({"min": "2.22.3"}, "2.18.3-1", NEW),
        ({"held": True}, OLD, None),
    ],
)
def test_the_version_that_is_offered_and_fits_is_chosen(nccl, installed, expected):
    chosen = plan(nccl, (installed,))
    assert chosen["install"] == ({"libnccl2": expected} if expected else {})
    assert chosen["problems"] == []
    assert chosen["is_downgrade"] == (expected == OLD)


def test_repositories_are_asked_only_where_something_is_to_be_done():
    assert plan({"version": "2.26.5"}, offered=None)["needs_offers"]
    assert not plan({"version": "2.21.5"}, offered=None)["needs_offers"]
    assert not plan({}, offered=None)["needs_offers"]


def test_headers_go_along_or_nothing_moves():
    assert plan({"version": "2.26.5"}, headers=[NEW])["install"] == {
        "libnccl2": NEW,
        "libnccl-dev": NEW,
    }
    refused = plan({"version": "2.26.5"}, headers=[OLD])
    assert refused["install"] == {}
    assert "libnccl-dev" in refused["problems"][0]


def test_what_nobody_offers_is_refused_with_what_is_on_offer():
    refused = plan({"version": "2.25.1"})
    assert refused["install"] == {}
    assert refused["problems"] == [
        f"the node's repositories do not have libnccl2 2.25.1 for CUDA 12; they have {', '.join(OFFERED)}; add the repository"
    ]


def test_no_package_is_brought_where_there_is_none_and_an_environments_library_is_left_to_it():
    wheel = {
        "path": "/opt/train/libnccl.so.2",
        "version": "2.21.5",
        "package": None,
        "where": "host",
    }
    found = plan(
        {"version": "2.26.5"},
        installed=(),
        libraries=[wheel, {**wheel, "version": "2.26.5"}, {**wheel, "where": "container"}],
    )
    assert (found["install"], found["problems"]) == ({}, [])
    assert found["notes"] == [
        "/opt/train/libnccl.so.2 is 2.21.5 and of no package: bring its environment to 2.26.5, with"
        " pip where pip installed it"
    ]
