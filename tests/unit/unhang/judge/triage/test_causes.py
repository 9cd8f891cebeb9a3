"""Causes of whole runs: their content and order, and that each node is counted once."""

from __future__ import annotations

import json

import fleets
import pytest

from unhang.audit.report import phrases
from unhang.core.schemas.check import check_schema
from unhang.judge.fleet.judged_node import Board, JudgedNode
from unhang.judge.rules.found import Found
from unhang.judge.triage.causes import triage
from unhang.judge.triage.grouping import Explaining


def shown(findings, nodes=None, explains=None):
    """The fields that triage adds; all nodes were read unless the test sets otherwise."""
    hosts = {host for one in findings for host in one.get("hosts") or [one["host"]]}
    return triage(
        fleets.failures(findings),
        Explaining(explains or {}),
        nodes or {host: JudgedNode(True) for host in hosts},
    )


def finding(rule, host, severity="error", **more):
    """A finding that a person repairs, unless it says otherwise."""
    return fleets.finding(
        rule, host, severity, f"title of {rule}", "e", "f", **{"remedy": {"person": "look"}, **more}
    )


def role(name, **policy):
    """A remedy that a role applies."""
    return {"role": name, "policy": policy}


def test_equal_causes_of_many_nodes_are_one_and_name_every_finding():
    (cause,) = shown([finding("r", f"gpu{number}") for number in (10, 2, 1)])["causes"]
    assert cause["nodes"] == ["gpu1", "gpu2", "gpu10"]
    assert cause["findings"] == [0, 1, 2]


def test_the_worst_of_what_it_explains_is_a_causes_severity():
    (cause,) = shown(
        [finding("small", "n", "warning"), finding("big", "n", "critical")],
        explains={"small": frozenset({"big"})},
    )["causes"]
    assert (cause["rule"], cause["severity"], cause["explains"]) == ("small", "critical", ["big"])


def test_causes_stand_in_the_order_of_harm_and_unread_nodes_before_other_errors():
    nodes = {**{f"n{number}": JudgedNode(True) for number in range(5)}, "gone": JudgedNode(False)}
    findings = [
        finding("few", "n0"),
        *(finding("many", f"n{number}") for number in range(3)),
        finding("node-unreachable", "gone"),
        finding("bad", "n4", "critical"),
    ]
    assert [cause["id"] for cause in shown(findings, nodes)["causes"]] == [
        "bad",
        "node-unreachable",
        "many",
        "few",
    ]


def test_each_node_has_one_verdict():
    nodes = {name: JudgedNode(name != "gone") for name in ("c", "e", "w", "i", "fine", "gone")}
    nodes |= {name: JudgedNode(True, applied=58) for name in ("login", "old-login")}
    findings = [
        finding("x", "c", "critical"),
        finding("y", "c", "warning"),
        finding("y", "w", "warning"),
        finding("z", "e"),
        finding("i", "i", "info"),
        finding("i", "login", "info"),
        finding("y", "old-login", "warning"),
    ]
    found = shown([*findings, finding("node-unreachable", "gone")], nodes)
    assert found["node_verdicts"] == {
        "critical": ["c"], "error": ["e"], "warning": ["old-login", "w"], "unread": ["gone"],
        "not a GPU node": ["login"], "healthy": ["fine", "i"], "partly read": [],
    }  # fmt: skip
    assert found["without_gpus"] == {"login": 58, "old-login": 58}


def test_xids_with_another_code_are_another_cause_with_an_id_of_its_own():
    codes = [
        finding("xid-fatal", f"n{code}", "critical", where={"code": code}) for code in (79, 48, 79)
    ]
    assert [(cause["id"], cause["nodes"]) for cause in shown(codes)["causes"]] == [
        ("xid-fatal", ["n79"]),
        ("xid-fatal-2", ["n48"]),
    ]


def test_two_rules_that_want_a_driver_give_one_answer_on_the_node_that_has_both():
    old, older = (
        role("gpu_driver", driver={"min": "550.54.14"}),
        role("gpu_driver", driver={"min": "580.65.06"}),
    )
    causes = shown(
        [
            finding("a", "n1", remedy=old),
            finding("a", "n2", remedy=old),
            finding("b", "n2", remedy=older),
        ]
    )["causes"]
    answers = {
        (cause["rule"], node): cause["remedy"]["policy"]["driver"]["min"]
        for cause in causes
        for node in cause["nodes"]
    }
    assert answers == {("a", "n1"): "550.54.14", ("a", "n2"): "580.65.06", ("b", "n2"): "580.65.06"}


def test_an_exact_driver_of_the_inventory_below_what_a_rule_needs_is_said_once_as_a_conflict():
    nodes = {"n": JudgedNode(True, policy={"driver": {"version": "535.154.05"}}, policy_key=1)}
    wanted = [
        finding("policy-driver-version", "n", remedy={"role": "gpu_driver", "person": "bring it"}),
        finding("bad", "n", remedy=role("gpu_driver", driver={"min": "580.65.06"})),
    ]
    causes = shown(wanted, nodes)["causes"]
    assert [cause["remedy"]["policy"] for cause in causes] == [{}, {}]
    assert all(
        cause["remedy"]["conflicts"][0]["sides"][1]["because"] == "unhang_policy"
        for cause in causes
    )
    assert [cause["command"] for cause in causes] == [
        "unhang explain policy-driver-version",
        "unhang explain bad",
    ]


def test_a_critical_cause_in_conflict_keeps_jobs_off_until_a_person_has_decided():
    nodes = {"n": JudgedNode(True, "slurm", {"driver": {"version": "535.154.05"}}, 1)}
    wanted = [
        finding("policy-driver-version", "n", remedy={"role": "gpu_driver", "person": "bring it"}),
        finding("bad", "n", "critical", remedy=role("gpu_driver", driver={"min": "580.65.06"})),
    ]
    assert (
        shown(wanted, nodes)["causes"][0]["command"]
        == "scontrol update nodename=n state=drain reason='unhang: bad'"
    )


def test_of_causes_that_weigh_the_same_the_one_nearest_the_hardware_comes_first():
    """Not the one whose rule comes first in the alphabet."""
    setting = Found(0, "a", "a", "error", "node", ("n",), {}, {"person": "do"}, layer=10)
    gpu = Found(1, "z", "z", "error", "node", ("n",), {}, {"person": "do"}, layer=3)
    causes = triage([setting, gpu], Explaining({}), {"n": JudgedNode(True)})["causes"]
    assert [cause["rule"] for cause in causes] == ["z", "a"]


@pytest.mark.parametrize(
    ("given", "note", "command"),
    [
        (
            finding("r", "gpu1", remedy=role("host_tuning", limits={"nofile": 65536})),
            JudgedNode(True),
            "unhang remediate runs/latest --rule r --host gpu1",
        ),
        (
            finding("r", "gpu1", remedy=role("gpu_binding")),
            JudgedNode(True),
            "unhang remediate runs/latest --rule r --host gpu1",
        ),
        (
            finding("r", "gpu1", remedy=role("gpu_driver")),
            JudgedNode(True, policy={"driver": {"min": "535.154.05"}}, policy_key=1),
            "unhang remediate runs/latest --rule r --host gpu1",
        ),
        # No policy says which driver, and of no package is an NCCL that the role could exchange: a
        # plan would give both to a person.
        (finding("r", "gpu1", remedy=role("gpu_driver")), JudgedNode(True), "unhang explain r"),
        (
            finding("policy-nccl-version", "gpu1", remedy=role("nccl_profile")),
            JudgedNode(True),
            "unhang explain policy-nccl-version",
        ),
        (
            finding(
                "policy-nccl-version",
                "gpu1",
                remedy=role("nccl_profile"),
                where={"package": "libnccl2"},
            ),
            JudgedNode(True),
            "unhang remediate runs/latest --rule policy-nccl-version --host gpu1",
        ),
        (
            finding("r", "gpu1", "critical"),
            JudgedNode(True, "slurm"),
            "scontrol update nodename=gpu1 state=drain reason='unhang: r'",
        ),
        (
            finding("r", "gpu1", "critical"),
            JudgedNode(True, "kubernetes"),
            "kubectl drain gpu1 --ignore-daemonsets --delete-emptydir-data",
        ),
        (finding("r", "gpu1", "critical"), JudgedNode(True), "unhang explain r"),
        (finding("r", "gpu1"), JudgedNode(True, "slurm"), "unhang explain r"),
        (finding("node-unreachable", "gpu1"), JudgedNode(False), "unhang audit --host gpu1"),
        (
            finding("r", "gpu1; reboot", "critical"),
            JudgedNode(True, "slurm"),
            "scontrol update nodename='gpu1; reboot' state=drain reason='unhang: r'",
        ),
    ],
)
def test_every_cause_ends_in_a_command(given, note, command):
    (cause,) = shown([given], {given["host"]: note})["causes"]
    assert cause["command"] == command


def test_a_ticket_has_uuid_and_pci_address_from_all_findings_of_the_cause():
    same = [
        finding("lost", "n", "critical", where={"index": 3, "uuid": "GPU-1"}),
        finding("xid", "n", "critical", where={"index": 3, "pci_address": "0000:0b:00.0"}),
    ]
    (cause,) = shown(same, explains={"lost": frozenset({"xid"})})["causes"]
    assert cause["devices"] == [
        {"host": "n", "gpu": 3, "uuid": "GPU-1", "pci_address": "0000:0b:00.0", "serial": None}
    ]


def test_a_ticket_has_the_boards_serial_number_and_what_else_the_node_said_of_it():
    boards = (
        Board(0, "GPU-0", "0000:0a:00.0", "165000"),
        Board(3, "GPU-3", "0000:0b:00.0", "165003"),
    )
    events = [
        finding("xid", host, "critical", where={"pci_address": "0000:0b:00.0", "code": 79})
        for host in ("n1", "n2")
    ]
    (cause,) = shown(
        events, {"n1": JudgedNode(True, boards=boards), "n2": JudgedNode(True, boards=boards[:1])}
    )["causes"]
    assert cause["devices"] == [
        {
            "host": "n1",
            "gpu": 3,
            "uuid": "GPU-3",
            "pci_address": "0000:0b:00.0",
            "serial": "165003",
        },
        {"host": "n2", "gpu": None, "uuid": None, "pci_address": "0000:0b:00.0", "serial": None},
    ]
    assert (
        phrases.devices(cause)
        == "n1 GPU 3 serial 165003 PCI 0000:0b:00.0 GPU-3; n2 PCI 0000:0b:00.0"
    )


def test_causes_and_verdicts_are_what_the_schema_allows():
    nodes = {"a": JudgedNode(True, "slurm"), "b": JudgedNode(False)}
    findings = [
        finding("x", "a", "critical", where={"uuid": "GPU-1"}),
        finding("node-unreachable", "b"),
    ]
    document = fleets.document(findings, {"ok": 1, "unreachable": 1}) | shown(findings, nodes)
    assert list(check_schema(json.loads(json.dumps(document)), "findings-1")) == []


@pytest.mark.parametrize(("having", "is_cause"), [(1, True), (2, True), (3, False), (4, False)])
def test_a_remark_that_holds_for_most_healthy_nodes_is_no_cause(having, is_cause):
    hosts = [f"n{number}" for number in range(1, 5)]
    found = [finding("usual", host, "info") for host in hosts[:having]] + [
        finding("broken", "n9", "error"),
        finding("usual", "n9", "info"),
    ]
    causes = shown(found, {host: JudgedNode(True) for host in (*hosts, "n9")})["causes"]
    assert ("usual" in [cause["rule"] for cause in causes]) == is_cause
    assert "broken" in [cause["rule"] for cause in causes]


def test_a_remark_on_69_of_70_healthy_nodes_is_no_cause_and_one_on_a_single_of_them_is():
    hosts = [f"gpu{number:03d}" for number in range(1, 71)]
    usual = [finding("pid-max-low", host, "info") for host in hosts[:69]]
    found = shown(
        [*usual, finding("ecc-off", hosts[69], "info")], {host: JudgedNode(True) for host in hosts}
    )
    assert [(cause["rule"], cause["nodes"]) for cause in found["causes"]] == [
        ("ecc-off", hosts[69:])
    ]
    assert found["node_verdicts"]["healthy"] == hosts


def test_a_remark_about_one_machine_alone_is_shown():
    assert [cause["rule"] for cause in shown([finding("usual", "n1", "info")])["causes"]] == [
        "usual"
    ]


@pytest.mark.parametrize(
    ("owner", "remedy", "first"),
    [
        ("vendor", {"person": "drain the node and reset its GPUs; else have it replaced"}, "sre"),
        ("vendor", {"person": "have the card replaced, then reboot"}, "vendor"),
        ("facility", {"person": "reseat the card; reboot"}, "facility"),
        ("vendor", role("gpu_reset"), "sre"),
        ("user", {"person": "reset the counter of the job"}, "user"),
    ],
)
def test_who_acts_on_a_cause_follows_from_its_first_action(owner, remedy, first):
    (cause,) = shown([finding("r", "n", remedy=remedy, owner=owner)])["causes"]
    assert cause["owner"] == first
