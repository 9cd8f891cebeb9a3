"""A policy that a healthy machine gave itself, or its twin, says nothing against it above info: the
rules that read policies, tried on the gallery."""

from __future__ import annotations

import copy

import pytest
from changed_nodes import found_on_node
from drafted_policies import policy_of
from gallery import read_gallery

from unhang.act.plan.policy_from_nodes import policy_from_nodes
from unhang.core.schemas.policy import policy_faults

MACHINES = {machine.name: machine for machine in read_gallery()}


def policy_from(*documents):
    return policy_of(
        policy_from_nodes(
            {f"node{number}": one["sections"] for number, one in enumerate(documents)}
        )
    )


@pytest.mark.parametrize("name", MACHINES)
def test_policy_of_the_machine_itself_adds_nothing_above_info(name):
    document = MACHINES[name].document
    policy = policy_from(document)
    assert policy_faults(policy, ()) == []
    told = found_on_node(document, policy)
    assert {rule for rule, severity in told.items() if severity != "info"} <= set(
        MACHINES[name].above_info
    )


def kind_of(document):
    """What machines have in common of which one may give the other its policy."""
    sections = document["sections"]
    return (
        sections["gpus"]["model"],
        sections["gpus"]["count"],
        sections["node"]["dmi"]["product"],
        sections["driver"]["loaded"]["version"],
    )


PEERS = [
    (one, other)
    for one in MACHINES
    for other in MACHINES
    if one != other and kind_of(MACHINES[one].document) == kind_of(MACHINES[other].document)
]
# Where the two do differ in what the policy says.
DIFFERENT = {
    ("gcp_a3_mega_gke", "gcp_a3_mega_slurm"): {"policy-nofile"},
    ("coreweave_gh200", "gh200"): {"policy-rdma-ports"},
    ("l40s_roce", "l40s_ethernet"): {"policy-rdma-ports"},
    ("l40s_roce_nccl_2_27", "l40s_ethernet"): {"policy-rdma-ports"},
    ("l40s_ethernet", "l40s_roce"): {"policy-nofile"},
    ("l40s_ethernet", "l40s_roce_nccl_2_27"): {"policy-nofile"},
}


@pytest.mark.parametrize(("one", "other"), PEERS)
def test_policy_of_a_peer_adds_nothing_above_info_but_what_differs(one, other):
    document = MACHINES[other].document
    told = found_on_node(document, policy_from(MACHINES[one].document))
    assert {rule for rule, severity in told.items() if severity != "info"} - set(
        MACHINES[other].above_info
    ) == DIFFERENT.get((one, other), set())


@pytest.mark.parametrize(
    "name",
    [name for name, one in MACHINES.items() if one.document["sections"]["network"]["has_rdma"]],
)
def test_no_policy_lowers_the_memory_lock_of_an_rdma_node(name):
    document = copy.deepcopy(MACHINES[name].document)
    document["sections"]["limits"]["scopes"] = [
        {**one, "memlock_hard_bytes": 8 << 20} for one in document["sections"]["limits"]["scopes"]
    ]
    assert "memlock_bytes" not in policy_from(document).get("limits", {})
