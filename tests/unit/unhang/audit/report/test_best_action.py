"""The one action that fixes most."""

from __future__ import annotations

from unhang.audit.report.best_action import best_action

ERRORS = [{"severity": "error"}] * 8


def cause(rule, nodes, findings, role=None, severity="error", unread=False, conflicts=()):
    return {"id": rule, "rule": rule, "nodes": nodes, "findings": findings, "severity": severity, "unread": unread,
            "remedy": {"role": role, "policy": {}, "person": [],
            "conflicts": list(conflicts)}}  # fmt: skip


def test_a_role_counts_with_all_causes_that_it_repairs():
    best = best_action(
        [
            cause("bios", ["n9"], [1, 2, 3]),
            cause("a", ["n10", "n2"], [4, 5], "nccl_profile"),
            cause("b", ["n2"], [5, 6, 7], "nccl_profile"),
        ],
        ERRORS,
    )
    assert (best.role, best.rules, best.nodes, best.findings) == (
        "nccl_profile",
        ("a", "b"),
        ("n2", "n10"),
        4,
    )


def test_what_a_person_does_counts_for_its_own_cause():
    best = best_action(
        [
            cause("bios", ["n1"], [1, 2, 3]),
            cause("a", ["n1"], [4], "gpu_driver"),
            cause("c", ["n1"], [6, 7]),
        ],
        ERRORS,
    )
    assert (best.role, best.rules, best.findings) == (None, ("bios",), 3)


def test_what_nobody_can_act_on_yet_is_no_action():
    waits = [
        cause("gone", ["n1"], [1], unread=True),
        cause("info", ["n1"], [2], severity="info"),
        cause("split", ["n1"], [3], "gpu_driver", conflicts=[{}]),
    ]
    assert best_action([*waits, cause("a", ["n1"], [4])], ERRORS) is None
    assert best_action([], ERRORS) is None
    assert best_action(
        [*waits, cause("a", ["n1"], [4]), cause("b", ["n2"], [5], "gpu_driver")], ERRORS
    ).rules == ("b",)


def test_what_needs_no_repair_is_not_counted():
    found = [{"severity": "info"}] * 5 + [{"severity": "warning"}] * 3
    best = best_action(
        [
            cause("a", ["n1"], [0, 1, 2, 3, 5], "gpu_driver"),
            cause("b", ["n2"], [4, 6, 7], "kernel"),
        ],
        found,
    )
    assert (best.role, best.findings) == ("kernel", 2)


def test_remarks_come_after_causes_of_errors():
    found = [{"severity": "warning"}] * 6 + [{"severity": "error"}] * 2
    remark = cause("old", ["n1", "n2"], [0, 1, 2, 3], "nccl_profile", severity="warning")
    assert best_action([remark, cause("a", ["n1"], [6], "gpu_driver")], found).rules == ("a",)
    assert best_action([remark, {**remark, "id": "older"}], found).role == "nccl_profile"
