"""playbooks/remediate.yml on booted nodes: a preview that writes nothing, then the repair, proved
by the audit."""

from __future__ import annotations

from documented_command import as_typed, filled
from four_nodes import NAMES
from pinned_fleet import PINNED, ROLES, findings, proof, untouched
from playbooks_on_nodes import inventory_for, run_typed

FIRST, SECOND, *_ = NAMES


def test_a_preview_shows_what_would_change_and_writes_nothing_then_the_fleet_is_brought_to_its_policy(
    pinned,
):
    places = {
        "INVENTORY": inventory_for(pinned, NAMES, {}),
        "HOST": ",".join(NAMES),
        "ROLE": "gpu_binding",
    }
    preview = run_typed(
        pinned,
        filled(
            "ansible-playbook playbooks/remediate.yml -i INVENTORY --limit HOST -e unhang_roles=ROLE",
            places,
        ),
    )
    assert preview.code == 0
    assert preview.output.count("-CUDA_VISIBLE_DEVICES=0") == 4
    assert untouched(pinned, *NAMES) == list(NAMES)

    two = [FIRST, SECOND]
    places = {"inventory/mycluster": inventory_for(pinned, NAMES, {}, unhang_roles=ROLES)}
    line = as_typed(
        "ansible-playbook playbooks/remediate.yml -i inventory/mycluster --limit gpu001,gpu002 -e"
        " unhang_apply=true -e unhang_reboot=true",
        places,
    )
    acted = run_typed(pinned, line)
    assert acted.code == 0
    assert not {(name, PINNED) for name in two} & findings(pinned)
    assert all(
        PINNED in proof(pinned, name)["gone"] and proof(pinned, name)["healthy"] for name in two
    )
    assert [pinned.shell(name, "ls /var/lib/unhang").split() for name in two] == [
        ["fencing.json", "gpu_binding.json", "states"]
    ] * 2
