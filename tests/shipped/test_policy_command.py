"""`unhang policy --from HOSTS` audits the hosts first, and writes nothing when they could not be
read."""

from __future__ import annotations

import json

import yaml
from documented_command import as_typed
from forked_commands import forked
from local_fleet import CLEAN, PROJECT, envelope

FACTS = (PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text()


def policy(fleet, *arguments):
    """A finished `unhang policy` command."""
    return unhang(fleet, "policy", *arguments, "-i", fleet.inventory)


def unhang(fleet, *argv):
    """A finished command in the fleet's folder."""
    return forked(
        argv,
        fleet.folder,
        {**CLEAN, "ANSIBLE_HOME": str(fleet.folder / "home"), "UNHANG_RUNS": str(fleet.runs)},
    )


def test_hosts_are_audited_and_their_policy_written_once(fleet):
    for name in ("gpu001", "gpu002"):
        fleet.answering(name, envelope(node_facts=FACTS))
    fleet.answering("broken", "no JSON")
    refused = policy(fleet, "--from", "broken", "--out", fleet.folder / "policy.yml")
    assert refused.returncode == 2, refused.stdout
    assert "there are no facts of broken in " in refused.stderr
    assert not (fleet.folder / "policy.yml").exists()
    (fleet.folder / "group_vars").mkdir()
    form = as_typed(
        "unhang policy --from gpu[001-004] -i inventory/mycluster --out"
        " inventory/mycluster/group_vars/training.yml",
        {
            "inventory/mycluster/group_vars": fleet.folder / "group_vars",
            "inventory/mycluster": fleet.inventory,
            "gpu[001-004]": "gpu[001-002]",
        },
    )
    done = unhang(fleet, *form[1:])
    assert done.returncode == 0, done.stderr
    text = (fleet.folder / "group_vars" / "training.yml").read_text()
    assert text.startswith("# Written by unhang policy from gpu[001-002] (run ")
    assert yaml.safe_load(text)["unhang_policy"]["gpu"]["count"] == 8


# Facts of a node -> the key of the policy that is written from each.
WRITTEN = {
    ("gpus", "model"): "gpu.model",
    ("kernel", "release"): "kernel.min",
    ("driver", "loaded", "version"): "driver.version",
}


def test_what_a_node_says_never_runs_on_the_controller(fleet):
    """The policy lies where Ansible loads it as templates, and the next audit renders it."""
    proof = fleet.folder / "ran"
    facts = json.loads(FACTS)
    for *place, field in WRITTEN:
        section = facts["sections"]
        for name in place:
            section = section[name]
        section[field] = f"5.15.0-{{{{ lookup('ansible.builtin.pipe', 'touch {proof}') }}}}"
    fleet.answering("gpu001", envelope(node_facts=json.dumps(facts)))
    (fleet.folder / "group_vars").mkdir()
    done = policy(fleet, "--from", "gpu001", "--out", fleet.folder / "group_vars" / "all.yml")
    assert done.returncode == 0, done.stderr
    assert unhang(fleet, "audit", "-i", fleet.inventory, "--limit", "gpu001").returncode in (0, 1)
    assert fleet.nodes()["gpu001"]["policy"], "the audit has loaded the policy"
    assert not proof.exists()
    text = (fleet.folder / "group_vars" / "all.yml").read_text()
    assert [key for key in WRITTEN.values() if f"#   {key}: " not in text] == []
