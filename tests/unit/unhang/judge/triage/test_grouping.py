"""The findings that explain others on a node, and between nodes."""

from __future__ import annotations

from unhang.judge.rules.found import Found
from unhang.judge.triage.grouping import Explaining, same_thing, shares_of

EXPLAINS = {
    "gpu-lost": frozenset({"xid", "count", "links-differ"}),
    "link-down": frozenset({"links-few", "links-differ"}),
    "a": frozenset({"b"}),
    "b": frozenset({"c"}),
    "driver": frozenset({"setting"}),
    "setting": frozenset({"setting-kept"}),
    "coded": frozenset({"xid"}),
    "state": frozenset({"service"}),
}
ONLY = {"state": {"service": {"name": ["kubelet"]}}}


def found(number, rule, *hosts, severity="error", where=None, apart=()):
    """One failure; with `apart` it is a comparison of nodes."""
    return Found(
        number,
        rule,
        rule,
        severity,
        "group" if apart else "node",
        hosts,
        where or {},
        {"person": "look"},
        tuple(map(frozenset, apart)),
    )


def shown(*findings):
    """(root's number, host, numbers of what it accounts for) of each share."""
    return [
        (share.root.number, share.host, sorted(one.number for one in share.members))
        for share in shares_of(findings, Explaining(EXPLAINS, {"coded": {"code": [79]}}, ONLY))
    ]


def test_a_finding_is_folded_under_the_one_that_explains_it_on_its_own_node_alone():
    assert shown(found(0, "gpu-lost", "n1"), found(1, "xid", "n1"), found(2, "xid", "n2")) == [
        (0, "n1", [0, 1]),
        (2, "n2", [2]),
    ]


def test_what_explains_is_followed_to_its_end():
    assert shown(found(0, "c", "n1"), found(1, "b", "n1"), found(2, "a", "n1")) == [
        (2, "n1", [0, 1, 2])
    ]


def test_a_rule_between_that_did_not_fail_hides_nothing():
    assert shown(found(0, "a", "n1"), found(1, "c", "n1")) == [(0, "n1", [0, 1])]


def test_past_a_rule_that_failed_only_what_is_about_the_same_thing_follows():
    kept = (
        found(1, "setting-kept", "n1", where={"name": "NCCL_ALGO"}),
        found(2, "setting", "n1", where={"name": "NCCL_P2P_DISABLE"}),
    )
    assert shown(found(0, "driver", "n1"), *kept) == [(0, "n1", [0, 2]), (1, "n1", [1])]


def test_what_holds_for_one_code_alone_holds_for_no_other():
    coded = [
        found(0, "coded", "n1", where={"code": 79}),
        found(1, "xid", "n1"),
        found(2, "coded", "n2", where={"code": 48}),
        found(3, "xid", "n2"),
    ]
    assert shown(*coded) == [(0, "n1", [0, 1]), (2, "n2", [2]), (3, "n2", [3])]


def test_what_is_explained_can_be_one_service_alone_and_its_unit_is_the_same():
    services = [
        found(number, "service", "n1", where={"name": name})
        for number, name in enumerate(("kubelet.service", "slurmd.service", "kubelet"))
    ]
    assert shown(*services, found(3, "state", "n1")) == [(1, "n1", [1]), (3, "n1", [0, 2, 3])]


def test_a_link_of_one_gpu_does_not_account_for_another_gpu():
    links = (
        found(0, "link-down", "n1", where={"gpu": 3}),
        found(1, "links-few", "n1", where={"index": 3}),
        found(2, "links-few", "n1", where={"index": 5}),
    )
    assert shown(*links) == [(0, "n1", [0, 1]), (2, "n1", [2])]


def test_two_gpus_with_a_fault_of_their_own_keep_what_belongs_to_each():
    pairs = [
        found(number, rule, "n1", where={"gpu": gpu})
        for number, (rule, gpu) in enumerate(
            [(r, g) for g in (1, 2) for r in ("link-down", "links-few")]
        )
    ]
    assert shown(*pairs) == [(0, "n1", [0, 1]), (2, "n1", [2, 3])]


def test_a_difference_between_nodes_is_folded_when_the_outliers_have_causes_of_their_own():
    differ = found(2, "links-differ", "n2", "n3", apart=[("n1", "n4"), ("n2",), ("n3",)])
    assert shown(found(0, "link-down", "n2"), found(1, "gpu-lost", "n3"), differ) == [
        (0, "n2", [0, 2]),
        (1, "n3", [1, 2]),
    ]


def test_an_outlier_without_a_cause_keeps_the_difference():
    differ = found(2, "links-differ", "n2", "n3", apart=[("n1", "n4"), ("n2",), ("n3",)])
    assert shown(found(0, "link-down", "n2"), differ) == [(0, "n2", [0]), (2, "n3", [2])]


def test_where_no_side_has_the_majority_a_cause_on_one_of_two_nodes_is_the_difference():
    differ = found(1, "links-differ", "n1", "n2", apart=[("n1",), ("n2",)])
    assert shown(found(0, "link-down", "n2"), differ) == [(0, "n2", [0, 1])]


def test_every_failure_is_in_a_share():
    many = [
        found(number, rule, host)
        for number, (rule, host) in enumerate(
            [(r, h) for h in ("n1", "n2") for r in ("a", "c", "xid", "gpu-lost", "z")]
        )
    ]
    assert {number for _, _, numbers in shown(*many) for number in numbers} == set(range(10))


def test_things_without_a_common_name_may_be_the_same():
    assert same_thing({"gpu": 3}, {})
    assert same_thing({"gpu": 3}, {"pci_address": "0000:0b:00.0"})
    assert same_thing({"gpu": 3, "uuid": "GPU-1"}, {"index": 3, "uuid": "GPU-1"})
    assert not same_thing({"gpu": 3}, {"index": 4})
    assert not same_thing({"name": "NCCL_ALGO"}, {"name": "NCCL_PROTO"})
