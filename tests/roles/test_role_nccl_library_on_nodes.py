"""The package of NCCL on a booted node is changed to the policy's version, up and down, and never
beyond what the repository has."""

from __future__ import annotations

import pytest
from playbooks_on_nodes import play
from repository import APT, build_package, serve
from role_plays import play_role, state_of

NODE = "gpu001"
OLD, NEW, OTHER = "2.21.5-1+cuda12.4", "2.26.5-1+cuda12.9", "2.26.5-1+cuda13.0"
ONLY = {
    "nccl_profile_conf": False,
    "nccl_profile_disable_settings": False,
    "nccl_profile_launch_paths": [],
}


@pytest.fixture
def equipped(fleet, tmp_path):
    """A node with an old libnccl2 and its headers, whose repository has a newer one for this CUDA
    release and for the next."""
    fields = {"libnccl-dev": "Depends: libnccl2 (= {})\n"}
    rows = [
        (name, version) for name in ("libnccl2", "libnccl-dev") for version in (OLD, NEW, OTHER)
    ]
    serve(
        fleet,
        NODE,
        [
            build_package(tmp_path, name, version, fields=fields.get(name, "").format(version))
            for name, version in rows
        ],
    )
    fleet.shell(NODE, f"{APT} install libnccl2={OLD} libnccl-dev={OLD}")
    fleet.undo.callback(fleet.shell, NODE, "rm -rf /var/lib/unhang")
    return fleet


def versions(fleet):
    return set(fleet.shell(NODE, "dpkg-query -W -f '${Version}\\n' libnccl2 libnccl-dev").split())


def test_the_packages_move_together_and_back_and_a_version_that_nobody_offers_moves_nothing(
    equipped,
):
    untouched = state_of(equipped, NODE)
    wanted = {"nccl": {"min": "2.22.3"}}
    foretold = play_role(equipped, "nccl_profile", NODE, wanted, "--check", **ONLY)
    assert state_of(equipped, NODE) == untouched
    applied = play_role(equipped, "nccl_profile", NODE, wanted, **ONLY)
    assert applied.changed == foretold.changed == {NODE: 1}
    assert versions(equipped) == {NEW}
    assert play_role(equipped, "nccl_profile", NODE, wanted, **ONLY).changed == {NODE: 0}

    refused = play_role(equipped, "nccl_profile", NODE, {"nccl": {"version": "2.25.1"}}, **ONLY)
    assert refused.failed == {NODE: 1}
    assert (
        f"the node's repositories do not have libnccl2 2.25.1 for CUDA 12; they have {OTHER}, {NEW}, {OLD}"
        in refused.output
    )
    assert versions(equipped) == {NEW}

    assert play_role(
        equipped, "nccl_profile", NODE, {"nccl": {"version": "2.21.5"}}, **ONLY
    ).changed == {NODE: 1}
    assert versions(equipped) == {OLD}

    for before in (NEW, OLD):
        assert play(equipped, "playbooks/rollback.yml", [NODE], {}, unhang_apply=True).code == 0
        assert versions(equipped) == {before}
