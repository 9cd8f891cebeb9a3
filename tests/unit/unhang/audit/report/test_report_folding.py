"""Findings folded over hosts and items, and unfolded again."""

from __future__ import annotations

import fleets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.audit.report.folding import (
    fold_findings,
    fold_items,
    fold_unread,
    item_label,
    without_identities,
)
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.findings import hosts_of

# A host whose name is a word of the sentence cannot be distinguished from it: its findings are not
# folded.
HOSTS = st.from_regex(r"[a-z]{1,3}-?[0-9]{0,3}(-[a-z][0-9]{1,2})?", fullmatch=True).filter(
    lambda host: host not in ("of", "x4", "x8")
)


@pytest.mark.parametrize(
    ("hosts", "folded"),
    [
        ([f"gpu{i:03d}" for i in range(1, 9)], "gpu[001-008]"),
        (["gpu1", "gpu01"], "gpu[01,1]"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["login"], "login"),
        (["../x", "a,b", "gpu[1-3]"], "../x,a,b,gpu[1-3]"),
        (["\x1b[31m"], "\\x1b[31m"),
        ([], ""),
    ],
)
def test_hosts_are_written_as_slurm_writes_them(hosts, folded):
    assert sorted(fold_hosts(hosts)) == sorted(folded)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(HOSTS, st.integers(0, 15), st.sampled_from(["x4", "x8"])),
        min_size=1,
        max_size=80,
        unique_by=lambda row: row[:2],
    )
)
def test_every_finding_is_reported_exactly_once(rows):
    findings = [
        fleets.finding(
            "gpu-pcie-width",
            host,
            "warning",
            "narrow",
            "x16",
            f"GPU {index} (0000:{index:02x}:00.0) of {host} runs {width}",
            where={"index": index},
        )
        for host, index, width in rows
    ]
    folds = fold_findings(findings)
    shown = [
        (host, item, str(fold.example["found"])[-2:])
        for fold in folds
        for place in fold.places
        for host in place.hosts
        for item in place.items
    ]
    assert sorted(shown) == sorted((host, f"GPU {index}", width) for host, index, width in rows)
    assert sum(fold.size for fold in folds) == len(rows)
    assert len(folds) == len({width for _, _, width in rows})


def test_the_most_severe_stand_first_and_then_those_on_most_hosts():
    findings = [fleets.finding("a", "n1", "info", "t", "e", "f")]
    findings += [fleets.finding("b", host, "error", "t", "e", "f") for host in ("n1", "n2")]
    findings += [
        fleets.finding("c", "n1", "error", "t", "e", "f"),
        fleets.finding("d", "n1", "critical", "t", "e", "f"),
    ]
    assert [fold.example["rule"] for fold in fold_findings(findings)] == ["d", "b", "c", "a"]


def test_findings_of_two_groups_are_not_mixed():
    findings = [
        fleets.finding(
            "drift", None, "error", "t", "e", "f", scope="group", group=group, hosts=hosts
        )
        for group, hosts in (("a", ["a1"]), ("b", ["b1"]))
    ]
    assert [fold.hosts for fold in fold_findings(findings)] == [("a1",), ("b1",)]


@pytest.mark.parametrize(
    ("labels", "folded"),
    [
        ([f"GPU {i}" for i in range(8)], "GPU 0-7"),
        (["GPU 3 link 1", "GPU 3 link 2"], "GPU 3 link 1-2"),
        (["mlx5_0", "mlx5_1"], "mlx5_0, mlx5_1"),
        ([""], ""),
        (
            [f"/opt/env{i}" for i in "abcdefghijk"],
            (
                "/opt/enva, /opt/envb, /opt/envc, /opt/envd, /opt/enve, /opt/envf, /opt/envg,"
                " /opt/envh and 3 more"
            ),
        ),
    ],
)
def test_items_are_folded_like_hosts(labels, folded):
    assert fold_items(labels) == folded


@pytest.mark.parametrize(
    ("where", "label"),
    [
        ({}, ""),
        ({"index": 3, "uuid": "x"}, "GPU 3"),
        ({"gpu": 3, "link": 7}, "GPU 3 link 7"),
        ({"a": 0, "b": 1}, "GPU 0 to GPU 1"),
        ({"name": "mlx5_0"}, "mlx5_0"),
        ({"odd": 1}, "odd 1"),
        ({"path": "/opt/env/lib"}, "/opt/env/lib"),
        (
            {
                "path": "faults.events[0]",
                "code": 79,
                "pci_address": "0000:0b:00.0",
                "line": "NVRM: Xid",
            },
            "PCI 0000:0b:00.0",
        ),
        ({"path": "faults.events[12]", "kind": "hung_task"}, "kind hung_task"),
        ({"path": "tables.nccl_issues.communicators-leak"}, "communicators-leak"),
        ({"path": "tables.xid_levels[79]"}, "79"),
        ({"path": "network.interfaces[2]"}, "network.interfaces[2]"),
    ],
)
def test_an_item_has_the_name_that_people_use(where, label):
    assert item_label(where) == label


def unknown(rule, host, *paths, status="denied", reason="needs root"):
    missing = [{"path": path, "status": status, "reason": reason} for path in paths]
    return fleets.finding(rule, host, "error", "t", "e", "", verdict="unknown", missing=missing)


def test_unknown_findings_are_folded_by_why_their_facts_were_not_read():
    gaps = fold_unread(
        [
            unknown("a", "n1", "gpus.devices[0].ecc"),
            unknown("a", "n2", "gpus.devices[3].ecc"),
            unknown("b", "n1", "gpus.devices[1].ecc", "limits.shm"),
        ]
    )
    assert [(gap.path, gap.reason, gap.rules, gap.hosts) for gap in gaps] == [
        ("gpus.devices[*].ecc, limits.shm", "denied: needs root", ("a", "b"), ("n1", "n2")),
    ]


def test_one_folder_on_a_network_file_system_is_one_line_whatever_would_be_in_it():
    def far(rule, path, file):
        return unknown(
            rule,
            "n1",
            path,
            status="error",
            reason=f"{file}: lies on nfs4 at /opt, which nobody named: not touched",
        )

    folded = fold_unread([far(f"rule-{number}", f"nccl.libraries[{number}].version", f"/opt/env{number}/libnccl.so.2") for number in range(70)]
        + [far("torch", "torch.environments", "/opt/conda"), unknown("shm", "n1", "limits.shm",
        status="timeout", reason="stat /dev/shm")])  # fmt: skip
    assert [(gap.path, len(gap.rules)) for gap in folded] == [
        ("nccl.libraries[*].version, torch.environments", 71),
        ("limits.shm", 1),
    ]
    assert folded[0].reason == "error: /opt lies on nfs4, which nobody named: not touched"


def test_many_facts_of_one_reason_are_counted():
    (gap,) = fold_unread([unknown("a", "n1", *(f"limits.sysctls.{number}" for number in range(9)))])
    assert gap.path.endswith("limits.sysctls.5 and 3 more")


def test_a_finding_without_a_host_folds_too():
    assert hosts_of(fleets.finding("a", None, "info", "t", "e", "f")) == ()
    assert (
        fold_findings([fleets.finding("a", None, "info", "t", "e", "f", scope="fleet")])[0].hosts
        == ()
    )


def test_a_long_node_set_is_cut_between_its_parts():
    assert shortened("gpu[001,003,005,007]", 12) == "gpu[001,003,…]"
    assert shortened("gpu[001-008]", 40) == "gpu[001-008]"


def test_two_thousand_nodes_with_fifty_findings_need_no_pairwise_comparison(monkeypatch):
    looked = 0

    class Counting(dict):
        def get(self, key, default=None):
            nonlocal looked
            looked += 1
            return super().get(key, default)

    def cost(hosts):
        nonlocal looked
        looked = 0
        findings = [
            Counting(fleets.finding(f"rule-{rule}", f"gpu{host:04d}", "error", "t", "e", "f"))
            for rule in range(10)
            for host in range(hosts)
        ]
        folds = fold_findings(findings)
        assert len(folds) == 10
        return looked

    assert cost(400) <= cost(100) * 4.1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            ("GPU 3 (0000:3b:00.0) runs x8", "a", {"index": 3}),
            ("GPU 4 (0000:5e:00.0) runs x8", "b", {"index": 4}),
        ),
        (("gpu1 has no route", "gpu1", None), ("gpu2 has no route", "gpu2", None)),
        (("mlx5_2 is down", "a", {"name": "mlx5_2"}), ("mlx5_3 is down", "b", {"name": "mlx5_3"})),
        (
            ("GPU-12345678-1234-1234-1234-123456789abc is lost", "a", None),
            ("GPU-87654321-1234-1234-1234-123456789abc is lost", "a", None),
        ),
    ],
)
def test_texts_that_differ_only_in_identities_compare_equal(one, other):
    assert without_identities(*one) == without_identities(*other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("545.23.08", "5", None), ("535.23.08", "3", None)),
        (("x8 lanes", "a", {"index": 8}), ("x4 lanes", "b", {"index": 4})),
        (("gpu1 and gpu11", "gpu1", None), ("gpu2 and gpu12", "gpu2", None)),
    ],
)
def test_values_that_only_look_like_identities_stay(one, other):
    assert without_identities(*one) != without_identities(*other)
