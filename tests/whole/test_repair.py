"""playbooks/remediate.yml on booted nodes: a preview that writes nothing, then the repair, proved by the audit."""

from __future__ import annotations

from four_nodes import NAMES
from pinned_fleet import PINNED, findings, proof, remediate, untouched

FIRST, SECOND, *_ = NAMES


def test_a_preview_shows_what_would_change_and_writes_nothing_then_the_fleet_is_brought_to_its_policy(pinned):
    preview = remediate(pinned)
    assert preview.code == 0
    assert preview.output.count("-CUDA_VISIBLE_DEVICES=0") == 4
    assert untouched(pinned, *NAMES) == list(NAMES)

    two = [FIRST, SECOND]
    acted = remediate(pinned, hosts=two, unhang_apply=True)
    assert acted.code == 0
    assert not {(name, PINNED) for name in two} & findings(pinned)
    assert all(PINNED in proof(pinned, name)["gone"] and proof(pinned, name)["healthy"] for name in two)
    assert [pinned.shell(name, "ls /var/lib/unhang").split() for name in two] == [["fencing.json", "gpu_binding.json", "states"]] * 2
