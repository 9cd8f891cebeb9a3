"""Container runtimes have the versions of their packages, in which rules know releases with a
fault."""

from __future__ import annotations

import json

import pytest

from unhang_node.facts.runtime_versions import FIELD, add_runtime_versions


def sections(runtimes, installed):
    """The two sections of a node with these runtimes and packages, as the sources read them."""
    reason = {"field": FIELD, "status": "absent", "reason": "no file states it"}
    return {
        "node": {
            "container_runtimes": [{"name": name, "version": None} for name in runtimes],
            "probe": {"unread": [reason]},
        },
        "packages": {"installed": installed},
    }


def package(name, version):
    """A row of packages.installed."""
    return {"name": name, "version": version}


@pytest.mark.parametrize(
    ("runtime", "name", "version", "expected"),
    [
        ("nvidia-container-toolkit", "nvidia-container-toolkit", "1.17.3-1", "1.17.3"),
        ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "1.19.1-1", "1.19.1"),
        ("docker", "docker-ce", "5:28.3.0-1~ubuntu.24.04~noble", "28.3.0"),
        ("docker", "moby-engine", "28.3.0+azure-u24.04u1", "28.3.0"),
        ("containerd", "containerd.io", "1.7.12-3.1.el9", "1.7.12"),
    ],
)
def test_a_runtime_has_the_version_of_its_package(runtime, name, version, expected):
    node = sections([runtime], [package(name, version)])
    add_runtime_versions(node)
    assert node["node"]["container_runtimes"][0]["version"] == expected
    assert node["node"]["probe"]["unread"] == []


def test_a_runtime_without_a_package_keeps_its_reason():
    node = sections(["docker", "podman"], [package("docker.io", "28.2.2-0ubuntu1")])
    add_runtime_versions(node)
    assert [row["version"] for row in node["node"]["container_runtimes"]] == ["28.2.2", None]
    assert [row["field"] for row in node["node"]["probe"]["unread"]] == [
        "container_runtimes[1].version"
    ]


@pytest.mark.parametrize("given", ["{}", '{"node": {"probe": {"unread": []}}}'])
def test_sections_that_were_not_read_stay_as_they_are(given):
    found = json.loads(given)
    add_runtime_versions(found)
    assert json.dumps(found) == given
