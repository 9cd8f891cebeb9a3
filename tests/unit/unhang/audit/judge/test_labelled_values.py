"""Values that a rule joins of several facts are shown with the names of the facts, and only where
nodes differ."""

from __future__ import annotations

import pytest

from unhang.audit.judge.labelled_values import labelled, shown_values
from unhang.audit.report.phrases import comparison
from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.audit.rules.examples import catalogue_view
from unhang.audit.rules.expression import parsed
from unhang.audit.rules.groups import Ballot, Compared, add_votes, judge_group

PATHS = "(network.peermem.loaded | string) ~ ' ' ~ (network.dmabuf.possible | string)"
SETTINGS = (
    "nccl.settings | map(attribute='name') | join(' ') ~ '=' ~ (nccl.settings |"
    " map(attribute='value') | join(' '))"
)
SERVICES = " ~ ' ' ~ ".join(
    f"(node.services | map(attribute='{field}') | join(' '))"
    for field in ("name", "state", "running")
)


@pytest.mark.parametrize(
    ("compare", "values", "shown"),
    [
        (PATHS, ["False True", "False False"], ["dmabuf.possible=yes", "dmabuf.possible=no"]),
        (
            PATHS,
            ["False True", "None False"],
            [
                "peermem.loaded=no; dmabuf.possible=yes",
                "peermem.loaded=not known; dmabuf.possible=no",
            ],
        ),
        (SETTINGS, ["=", "NCCL_A NCCL_B=1 x=y"], ["none", "NCCL_A=1; NCCL_B=x=y"]),
        (SETTINGS, ["NCCL_A=1", "NCCL_A NCCL_B=1 2"], ["none", "NCCL_B=2"]),
        (
            SERVICES,
            ["chrony slurmd enabled enabled yes yes", "chrony slurmd enabled enabled yes no"],
            ["slurmd=enabled yes", "slurmd=enabled no"],
        ),
        (SERVICES, ["chrony enabled yes", "chrony enabled yes odd"], []),
        (SETTINGS, ["NCCL_A=1", "NCCL_A=1 2"], []),  # a blank within a value
        (
            "gpus.a | join(', ') ~ ' / ' ~ (gpus.b | join(', '))",
            ["1, 1 / 2", " / "],
            ["a=1, 1; b=2", "a=none; b=none"],
        ),
        # nobody can tell where the first part ends
        ("gpus.a ~ ' ' ~ gpus.b", ["x y z", "x y"], []),
        ("gpus.a ~ ' W / ' ~ gpus.b ~ ' MHz'", ["700 W / 1980 MHz", "600 W / 1980 MHz"], []),
        ("gpus.a ~ ' ' ~ gpus.b", ["x y", "x " + "y" * 500 + "…"], []),
        ("gpus.count", [8, 7], []),
    ],
)
def test_parts_have_their_names_where_it_is_sure_which_they_are(compare, values, shown):
    assert shown_values(parsed(compare), values) == shown


def test_a_finding_of_the_catalogue_has_names_in_its_texts_and_below_them():
    catalogue = load_catalogue()
    (rule,) = [one for one in catalogue.rules if one.id == "group-gpudirect-path-differs"]
    ballot = Ballot("train")
    add_votes(ballot, ["n1", "n2"], Compared("a", "False True"))
    add_votes(ballot, ["n3"], Compared("b", "False False"))
    found = labelled(rule, judge_group(rule, ballot, {}, catalogue_view(catalogue.tables)))
    assert (
        found.texts["found"]
        == "dmabuf.possible=yes // dmabuf.possible=no on 2 / 1 nodes; other than most: n3"
    )
    assert (
        found.texts["expected"]
        == "the same on all nodes of the group, most have dmabuf.possible=yes"
    )
    assert comparison({"comparison": found.comparison}) == [
        "dmabuf.possible=yes on n[1-2] (2 nodes)",
        "dmabuf.possible=no on n3",
    ]
    assert found.comparison["majority"] == "False True"


def test_an_empty_value_is_called_none():
    catalogue = load_catalogue()
    (rule,) = [one for one in catalogue.rules if one.id == "group-driver-differs"]
    ballot = Ballot("train")
    add_votes(ballot, ["n1", "n2"], Compared("a", "580.95.05"))
    add_votes(ballot, ["n3"], Compared("b", ""))
    found = labelled(rule, judge_group(rule, ballot, {}, catalogue_view(catalogue.tables)))
    assert found.texts["found"] == "580.95.05 // none on 2 / 1 nodes; other than most: n3"
