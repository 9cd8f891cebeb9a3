"""Nodes of a group are compared in every versioned fact and in every setting that has to be alike;
no side is blamed without a majority."""

from __future__ import annotations

import pytest
import yaml

from unhang.core.schemas.shapes import every_fact
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.examples import catalogue_view, judge_fragments
from unhang.judge.rules.like_things import reads_of

CATALOGUE = load_catalogue()
GROUP = {rule.id: rule for rule in CATALOGUE.rules if rule.scope == "group"}
VIEW = catalogue_view(CATALOGUE.tables, tuple(GROUP))
NOT_COMPARED = yaml.safe_load("""
kernel.installed.*.release: old kernels stay on some nodes longer; what boots next is compared
kernel.installed.*.nvidia_module: kernel-next-boot-without-driver looks at each node
driver.packages.*.version: what the packages carry is compared
packages.pending.*.installed: upgrades that wait, of each node
packages.pending.*.candidate: upgrades that wait, of each node
""")
"""Of lists that no row compares; of others the schema has the reason."""


FACTS = {path.replace("[", ".").replace("]", ""): one for path, one in every_fact() if one.version}
COMPARED = {".".join(path) for rule in GROUP.values() for path in rule.compare.reads} | {
    ".".join(path) for path in reads_of(CATALOGUE.tables, "peers")
}


@pytest.mark.parametrize("fact", FACTS)
def test_every_versioned_fact_is_compared_between_peers_or_there_is_a_reason_why_not(fact):
    reason = FACTS[fact].not_compared or NOT_COMPARED.get(fact)
    # a rule of its own compares it, or none does
    assert (fact in COMPARED) == (not reason or str(reason).endswith(" compares it"))


VARIABLES = CATALOGUE.tables["nccl_variables"]
SETTINGS = GROUP["group-settings-differ"]


def judged(rule, *values, name="NCCL_IB_HCA", source="nccl_conf"):
    """The verdict on a group of nodes with these values of a setting, None for one without it."""
    nodes = [
        {
            "nccl": {"settings": [{"name": name, "value": one, "source": source}] if one else []},
            "network": {"rdma": [{"name": f"mlx5_{number}"} for number in range(8)]},
        }
        for one in values
    ]
    return judge_fragments(rule, nodes, VIEW)


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_a_setting_that_one_node_has_differs_unless_it_is_a_nodes_own(name):
    is_own = VARIABLES[name].get("per_node")
    assert judged(SETTINGS, "1", None, None, name=name) == (
        "fail" if not is_own or name == "NCCL_IB_HCA" else "pass"
    )
    assert judged(SETTINGS, "1", "1", "1", name=name) == "pass"
    assert judged(SETTINGS, "1", None, None, name=name, source="process") == "pass"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (("mlx5_0,mlx5_1", "mlx5_2,mlx5_3", "=mlx5_6:1,mlx5_7:1"), "pass"),
        (("mlx5", "^bnxt", "mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7"), "pass"),
        (("mlx5", "mlx5", "mlx5_0,mlx5_1,mlx5_2,mlx5_3"), "fail"),
    ],
)
def test_the_number_of_cards_that_nccl_may_take_is_compared_and_their_names_are_not(
    values, verdict
):
    assert judged(SETTINGS, *values) == verdict
