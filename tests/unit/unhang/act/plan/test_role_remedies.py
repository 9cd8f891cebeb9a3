"""Findings that a role repairs are planned; all others are listed with the manual work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unhang.act.plan.departures import Present, departs
from unhang.act.plan.role_remedies import ROLE_ORDER, sort_remedies
from unhang.act.role_changes.nccl_setting_check import Known

HOME = Path(__file__).resolve().parents[5]
KNOWN = Known(
    not_real={"NCCL_TIMEOUT": "timeout of init_process_group"},
    renamed={"NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT"},
)
OLD_DRIVER = {"role": "gpu_driver", "policy": {"driver": {"min": "580.65.06", "held": True}}}
READS = {
    "driver-differs": frozenset({("driver", "loaded", "version")}),
    "needs-a-parameter": frozenset({("driver", "parameters")}),
    "policy-shm": frozenset({("policy", "limits", "shm_bytes"), ("limits", "shm", "size_bytes")}),
    "policy-nccl-version": frozenset(
        {("policy", "nccl", "version"), ("nccl", "libraries", "*", "version")}
    ),
    "build-nvcc": frozenset(
        {("cuda", "build_tools", "has_nvcc"), ("policy", "build", "extensions")}
    ),
}


def finding(rule, remedy, scope="node", **where):
    return {"rule": rule, "severity": "error", "remedy": remedy, "scope": scope, "where": where}


def sorted_out(*findings, policy=None, present=None):
    return sort_remedies(findings, policy or {}, present or Present(), READS, KNOWN)


def person(*findings, **more):
    """(rule, what) of a host for which no role is planned."""
    found = sorted_out(*findings, **more)
    assert (found.roles, found.refused) == ({}, ())
    return found.person


def test_the_order_of_roles_is_the_playbooks():
    text = (HOME / "playbooks" / "remediate.yml").read_text()
    (order,) = re.findall(r"remediate_order:\s+\[([^\]]*)\]", text)
    assert tuple(order.replace(",", " ").split()) == ROLE_ORDER


def test_roles_are_merged_in_order_under_one_policy():
    found = sorted_out(
        finding(
            "packages-driver-not-held",
            {"role": "package_hold", "policy": {"driver": {"held": True}}},
        ),
        finding("p2p-deadlock", OLD_DRIVER),
        finding("from-ubuntu", OLD_DRIVER),
        finding(
            "persistence-off",
            {
                "role": "host_tuning",
                "policy": {"host": {"persistence": True}},
                "person": "or by hand",
            },
        ),
        finding("kernel-old", {"role": "kernel", "policy": {"kernel": {"min": "5.15.0"}}}),
        policy={"gpu": {"count": 8}},
    )
    assert list(found.roles.items()) == [
        ("kernel", ("kernel-old",)),
        ("gpu_driver", ("from-ubuntu", "p2p-deadlock")),
        ("host_tuning", ("persistence-off",)),
        ("package_hold", ("packages-driver-not-held",)),
    ]
    assert found.policy == {
        "gpu": {"count": 8}, "driver": {"min": "580.65.06", "held": True},
        "host": {"persistence": True}, "kernel": {"min": "5.15.0"},
    }  # fmt: skip
    assert (found.refused, found.person) == ((), ())


def test_hardware_is_a_persons():
    assert person(finding("nvlink-down", {"person": "have the board serviced"})) == (
        ("nvlink-down", "have the board serviced"),
    )


@pytest.mark.parametrize("remedy", [None, {}])
def test_a_finding_without_a_remedy_is_a_persons(remedy):
    assert person(finding("odd", remedy)) == (("odd", "no remedy is known; look at the evidence"),)


def test_what_contradicts_the_inventory_is_refused_and_stays_out_of_the_policy():
    found = sorted_out(
        finding("p2p-deadlock", OLD_DRIVER), policy={"driver": {"version": "545.23.08"}}
    )
    assert (found.roles, found.person, found.policy) == (
        {},
        (),
        {"driver": {"version": "545.23.08"}},
    )
    (line,) = found.refused
    assert line.startswith(
        "p2p-deadlock: p2p-deadlock wants driver.min: 580.65.06, and unhang_policy wants"
        " driver.version: 545.23.08; unhang_policy decides"
    )


def test_a_role_without_what_it_needs_in_the_policy_is_a_persons():
    held = {"role": "gpu_driver", "policy": {"driver": {"held": True}}}
    ((rule, what),) = person(finding("group-driver-differs", held, scope="group"))
    assert rule == "group-driver-differs"
    assert what.endswith(
        "set driver.version or driver.min or driver.max in unhang_policy for role gpu_driver"
    )


def test_what_is_expected_stands_before_the_policy_that_a_role_lacks():
    held = {"role": "gpu_driver", "policy": {"driver": {"flavour": "open"}}}
    one = {**finding("gpus-need-the-open-modules", held), "expected": "the open modules"}
    ((_, what),) = person(one)
    assert what == (
        "bring the open modules: by hand, or set driver.version or driver.min or driver.max in"
        " unhang_policy for role gpu_driver"
    )


@pytest.mark.parametrize(
    ("version", "planned"), [("570.1", True), ("580.65.06", False), (None, False)]
)
def test_a_comparison_is_planned_only_where_the_node_departs_from_the_policy(version, planned):
    one = finding(
        "driver-differs",
        {"role": "gpu_driver", "person": "bring the outliers to one"},
        scope="group",
    )
    found = sorted_out(
        one, policy={"driver": {"version": "580.65.06"}}, present=Present(driver=version)
    )
    assert bool(found.roles) is planned
    assert bool(found.person) is not planned


def test_what_a_driver_does_not_bring_is_no_reason_to_install_one():
    one = finding("needs-a-parameter", {"role": "gpu_driver", "person": "write options nvidia …"})
    assert person(
        one, policy={"driver": {"version": "580.65.06"}}, present=Present(driver="570.1")
    ) == (("needs-a-parameter", "write options nvidia …"),)


def test_a_departure_from_the_policy_is_its_roles():
    one = finding(
        "policy-shm", {"role": "host_tuning", "person": "in a container: docker run --shm-size"}
    )
    assert sorted_out(one, policy={"limits": {"shm_bytes": 1}}).roles == {
        "host_tuning": ("policy-shm",)
    }


@pytest.mark.parametrize(
    ("name", "source", "policy", "planned"),
    [
        ("NCCL_TIMEOUT", "environment", {}, True),
        ("NCCL_BLOCKING_WAIT", "profile", {}, True),
        ("NCCL_ALGO", "nccl_conf", {}, False),
        ("NCCL_ALGO", "nccl_conf", {"nccl": {"settings": {"NCCL_ALGO": "Ring"}}}, True),
        ("NCCL_TIMEOUT", "user_nccl_conf", {}, False),
        ("NCCL_TIMEOUT", "process", {}, False),
    ],
)
def test_lines_that_the_profile_turns_into_comments_are_planned(name, source, policy, planned):
    one = finding(
        "nccl-line",
        {"role": "nccl_profile", "person": "take it out"},
        path="nccl.settings[1]",
        name=name,
        file="/etc/environment",
        line=1,
    )
    found = sorted_out(
        one, policy=policy, present=Present(settings=(("OTHER", "profile"), (name, source)))
    )
    assert (bool(found.roles), bool(found.person)) == (planned, not planned)


@pytest.mark.parametrize(
    ("package", "planned"),
    [("libnccl2", True), ("libnccl2:amd64", True), (None, False), ("python3-torch", False)],
)
def test_an_nccl_that_no_package_brought_is_a_persons(package, planned):
    where = {"path": "/opt/env/libnccl.so.2", **({"package": package} if package else {})}
    found = sorted_out(
        finding(
            "nccl-hangs", {"role": "nccl_profile", "policy": {"nccl": {"min": "2.26.5"}}}, **where
        )
    )
    assert bool(found.roles) is planned
    if not planned:
        assert found.person == (
            (
                "nccl-hangs",
                (
                    "NCCL in /opt/env/libnccl.so.2 is of no package: bring that environment to"
                    " 2.26.5 or newer"
                ),
            ),
        )
        assert found.policy == {}


def test_no_nvcc_is_brought_where_nobody_says_which():
    one = finding(
        "build-nvcc", {"role": "build_toolchain", "policy": {"build": {"extensions": True}}}
    )
    assert "torch.cuda or cuda.version" in person(one, policy={"build": {"extensions": True}})[0][1]
    assert sorted_out(one, policy={"torch": {"cuda": "12.8"}}).roles == {
        "build_toolchain": ("build-nvcc",)
    }


def test_every_finding_is_somewhere():
    rows = [
        finding("a", OLD_DRIVER),
        finding("b", {"person": "look"}),
        finding("c", {"role": "gpu_driver", "policy": {"driver": {"max": "550.1"}}}),
        finding("d", {"role": "host_tuning"}),
        finding("e", {"role": "a_role_of_ones_own", "person": "ask its author"}),
        finding("f", {"role": "gpu_binding", "person": "look for a pin"}),
    ]
    found = sorted_out(*rows)
    named = {
        *(rule for rules in found.roles.values() for rule in rules),
        *(rule for rule, _ in found.person),
    }
    assert named | {line.split(":")[0] for line in found.refused} == set("abcdef")
    assert [line.split(":")[0] for line in found.refused] == ["a", "c"]
    assert found.roles == {"gpu_binding": ("f",)}


@pytest.mark.parametrize(
    ("role", "policy", "present", "answer"),
    [
        ("kernel", {"kernel": {"min": "6.8"}}, Present(kernel="5.15.0-1-generic"), True),
        ("kernel", {"kernel": {"min": "5.15"}}, Present(kernel="5.15.0-1-generic"), False),
        (
            "kernel",
            {"kernel": {"version": "6.8.0-1-generic"}},
            Present(kernel="6.8.0-1-generic", boots_next="6.8.0-9-generic"),
            True,
        ),
        (
            "gpu_driver",
            {"driver": {"version": "580.1", "flavour": "open"}},
            Present(driver="580.1", flavour="proprietary"),
            True,
        ),
        (
            "gpu_driver",
            {"driver": {"version": "580.1"}},
            Present(driver="580.1", driver_on_disk="590.1"),
            True,
        ),
        ("fabric_manager", {}, Present(driver="580.1", fabric_manager="570.1"), True),
        (
            "fabric_manager",
            {"fabric_manager": {"match_driver": False}},
            Present(driver="580.1", fabric_manager="570.1"),
            False,
        ),
        ("nccl_profile", {"nccl": {"version": "2.27.5"}}, Present(nccl="2.21.5"), True),
        ("nccl_profile", {"nccl": {"version": "2.27.5"}}, Present(), False),
        ("host_tuning", {}, Present(), False),
    ],
)
def test_whether_a_node_departs(role, policy, present, answer):
    assert departs(role, policy, present) is answer
