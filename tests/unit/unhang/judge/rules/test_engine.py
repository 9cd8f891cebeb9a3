"""A verdict that is remembered from one node never stands for another node whose facts differ;
hosts are named in their natural order."""

from __future__ import annotations

import json

import pytest
from judge_cases import OK, node, rule, write_rules, write_run

from unhang.core.run.run_input import read_run_input
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules import engine
from unhang.judge.rules.compiled_catalogue import load_catalogue

TODAY = "2026-06-01"


def totals(folder, rules, *nodes):
    run = write_run(folder, *nodes)
    judge_run(read_run_input(run), rules, TODAY)
    return json.loads((run / "findings.json").read_text())["totals"]


def test_how_many_items_pass_is_counted_for_each_node(tmp_path):
    rules = load_catalogue(
        [
            write_rules(
                tmp_path / "rules",
                rule("item.power_draw_w > 5000", for_each="gpus.devices", id="own"),
            )
        ],
        built_in=False,
    )
    nodes = []
    for number, devices in enumerate((2, 4, 2, 0, 4, 1)):
        facts = {
            "gpus": {
                "probe": OK,
                "count": 8,
                "devices": [
                    {"index": one, "power_draw_w": 70.0 + number} for one in range(devices)
                ],
            }
        }
        nodes.append(node(f"n{number}", facts))
    assert totals(tmp_path / "run", rules, *nodes) == {
        "fail": 0,
        "pass": 13,
        "unknown": 0,
        "skip": 1,
        "waived": 0,
    }


def test_a_null_item_of_one_node_is_unknown_whatever_the_others_have(tmp_path):
    rules = load_catalogue(
        [
            write_rules(
                tmp_path / "rules", rule("node.uptime_s > 5000", for_each="gpus.devices", id="own")
            )
        ],
        built_in=False,
    )
    nodes = [
        node(
            f"n{number}",
            {
                "node": {"probe": OK, "uptime_s": 10.0 + number},
                "gpus": {"probe": OK, "devices": [{"index": 0}, second]},
            },
        )
        for number, second in enumerate(({"index": 1}, None, {"index": 1}))
    ]
    alone = [totals(tmp_path / f"alone{number}", rules, one) for number, one in enumerate(nodes)]
    assert totals(tmp_path / "run", rules, *nodes) == {
        key: sum(one[key] for one in alone) for key in alone[0]
    }


def test_a_reason_that_names_an_item_is_another_nodes_other_item(tmp_path):
    """Both say of /opt/a that it has no Python; on one node that is the only environment, on the
    other /opt/b is."""
    rules = load_catalogue(
        [
            write_rules(
                tmp_path / "rules",
                rule("item.python == '3.9'", for_each="torch.environments", id="own"),
            )
        ],
        built_in=False,
    )
    unread = {
        "status": "ok",
        "unread": [{"field": "environments[/opt/a].python", "status": "absent", "reason": "why"}],
    }
    facts = [
        {"torch": {"probe": unread, "environments": [{"path": f"/opt/{path}"}]}}
        for path in ("a", "b", "a")
    ]
    nodes = [node(f"n{number}", one) for number, one in enumerate(facts)]
    found = totals(tmp_path / "run", rules, *nodes)
    assert (found["skip"], found["unknown"]) == (2, 1)


def test_no_list_is_something_else_than_an_item_with_nothing_in_it(tmp_path):
    """The first node's libraries were not read; the second node's library was read, and has no
    version."""
    of_libraries = (
        "nccl.libraries | selectattr('version', 'equalto', item.value) | selectattr('cuda',"
        " 'equalto', '12') | list | length > 0"
    )
    row = rule(of_libraries, applies="nccl.libraries | list | length > 0", for_each="nccl.settings")
    rules = load_catalogue([write_rules(tmp_path / "rules", row)], built_in=False)
    facts = [
        {"nccl": {"probe": OK, "settings": [], **more}}
        for more in ({}, {"libraries": [{"path": "/a", "version": None, "cuda": None}]}, {})
    ]
    alone = [
        totals(tmp_path / f"alone{number}", rules, node("n", one))
        for number, one in enumerate(facts)
    ]
    together = totals(
        tmp_path / "run", rules, *(node(f"n{number}", one) for number, one in enumerate(facts))
    )
    assert together == {key: sum(one[key] for one in alone) for key in together}
    assert alone[0] != alone[1]


SPELT = (10_000_000_000, 1e10, 0, 0.0, -0.0, 2**60, 2.0**60, 79.5)


@pytest.mark.parametrize(
    ("when", "found"),
    [
        # what a node is configured as
        ("item.memory_total_mib >= 0", "{{ item.memory_total_mib }}"),
        ("item.power_draw_w is known", "{{ item.power_draw_w }}"),  # what is measured
        ("(item.memory_total_mib ~ '') == '10000000000'", "so"),
        ("(item.power_draw_w ~ '') == '10000000000'", "so"),
        # what is shown alone
        ("item.index == 0", "{{ item.memory_total_mib }} {{ item.power_draw_w }}"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_numbers_that_are_equal_and_written_in_two_ways_are_each_nodes_own(
    tmp_path, when, found, order
):
    rules = load_catalogue(
        [
            write_rules(
                tmp_path / "rules", rule(when, for_each="gpus.devices", id="own", found=found)
            )
        ],
        built_in=False,
    )
    assert not rules.faults
    nodes = [
        node(
            f"n{place}",
            {
                "gpus": {
                    "probe": OK,
                    "count": 1,
                    "devices": [{"index": 0, "memory_total_mib": one, "power_draw_w": one}],
                }
            },
        )
        for place, one in enumerate(SPELT)
    ][::order]
    assert_as_if_alone(tmp_path, rules, nodes)


def test_policies_that_are_equal_and_written_in_two_ways_are_each_nodes_own(tmp_path):
    rows = [
        rule(
            "policy.nccl.settings.NCCL_X is known",
            id="whole",
            found="{{ policy.nccl.settings.NCCL_X }}",
        ),
        rule("(policy.nccl.settings.NCCL_X ~ '') == '10000000000'", id="text", found="so"),
        rule(
            "(policy.gpu.count ~ '') == '10000000000'", id="count", found="{{ policy.gpu.count }}"
        ),
    ]
    rules = load_catalogue([write_rules(tmp_path / "rules", *rows)], built_in=False)
    assert not rules.faults
    policies = [
        {
            "nccl": {"settings": {"NCCL_X": one}},
            "gpu": {"count": 8 if isinstance(one, str) else one},
        }
        for one in (10**10, 1e10, "10000000000", 1, 1.0, "1")
    ]
    assert_as_if_alone(
        tmp_path, rules, [node(f"n{place}", policy=one) for place, one in enumerate(policies)]
    )


def assert_as_if_alone(tmp_path, rules, nodes):
    """Each node's findings in a run of all are those of a run of its own, letter for letter."""

    def findings(folder, *judged):
        run = write_run(folder, *judged)
        judge_run(read_run_input(run), rules, TODAY)
        return [
            json.dumps(one) for one in json.loads((run / "findings.json").read_text())["findings"]
        ]

    together = findings(tmp_path / "run", *nodes)
    alone = [line for one in nodes for line in findings(tmp_path / f"alone-{one['host']}", one)]
    assert sorted(together) == sorted(alone)
    assert alone


def own_rules(tmp_path, *rows):
    rules = load_catalogue([write_rules(tmp_path / "rules", *rows)], built_in=False)
    assert not rules.faults
    return rules


def test_nodes_with_equal_facts_are_judged_once(tmp_path):
    nodes = [
        node(f"n{number}", {"node": {"probe": OK, "uptime_s": 5.0, "hostname": f"n{number}"}})
        for number in range(5)
    ]
    head = judge_run(
        read_run_input(write_run(tmp_path / "run", *nodes)),
        own_rules(tmp_path, rule("node.uptime_s > 1", id="own")),
        TODAY,
    )
    assert (head["totals"]["fail"], head["catalogue"]["evaluations"]) == (5, 1)


def test_facts_that_differ_on_every_node_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "MOST_KNOWN", 3)
    rules = own_rules(tmp_path, rule("node.uptime_s > 5", id="own", found="{{ node.uptime_s }}"))
    assert_as_if_alone(
        tmp_path,
        rules,
        [
            node(f"n{number}", {"node": {"probe": OK, "uptime_s": float(number % 9)}})
            for number in range(30)
        ],
    )


def test_hosts_are_in_natural_order_whatever_their_answers(tmp_path):
    """Two kinds of nodes alternate, and the file names sort n10 before n2."""
    nodes = [
        node(
            f"n{number}",
            {
                "node": {
                    "probe": OK,
                    "cpu": {"logical_cpus": 1 + number % 2},
                    "uptime_s": float(number // 3),
                }
            },
        )
        for number in range(1, 13)
    ]
    row = rule(
        "distinct > 1",
        id="own",
        scope="group",
        compare="node.cpu.logical_cpus",
        found="{{ nodes | map(attribute='host') | join(' ') }}",
    )
    run = write_run(tmp_path / "run", *nodes)
    judge_run(
        read_run_input(run), own_rules(tmp_path, row, rule("node.uptime_s < 0", id="other")), TODAY
    )
    (finding,) = json.loads((run / "findings.json").read_text())["findings"]
    even, odd = ([f"n{number}" for number in range(start, 13, 2)] for start in (2, 1))
    assert [one["hosts"] for one in finding["comparison"]["counts"]] == [even, odd]
    assert finding["found"] == " ".join([*even, *odd])


def test_a_port_is_named_by_its_own_nodes_device(tmp_path):
    """Nothing that the rule reads differs between the nodes: the name of the device is only where
    the finding is."""
    nodes = [
        node(
            f"n{number}",
            {
                "network": {
                    "probe": OK,
                    "rdma": [{"name": f"mlx5_{number}", "ports": [{"port": 1, "state": "down"}]}],
                }
            },
        )
        for number in (1, 2)
    ]
    rules = own_rules(
        tmp_path,
        rule(
            "item.state == 'down'",
            id="own",
            for_each="network.rdma | map(attribute='ports') | flatten",
            found="so",
        ),
    )
    run = write_run(tmp_path / "run", *nodes)
    judge_run(read_run_input(run), rules, TODAY)
    assert [
        one["where"].get("name")
        for one in json.loads((run / "findings.json").read_text())["findings"]
    ] == ["mlx5_1", "mlx5_2"]
