"""The preview of a plan as a table: changes, refusals with reasons and reboots for each node and
role, and the table's maximum length."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rollout_plans import HOSTS, planned

from unhang.act.plan.plan_document import HostPlan, Refused, Remedy
from unhang.act.rollout.preview import parse_events, preview_of
from unhang.act.rollout.preview_table import render_preview
from unhang.core.ansible.preview_events import PreviewFile
from unhang.core.schemas.check import check_schema

FILE = {
    "before": "a\nb\n",
    "after": "a\nc\nd\n",
    "before_header": "/etc/x.conf",
    "after_header": "/etc/x.conf (content)",
}


@pytest.fixture
def preview(tmp_path):
    """Results of roles -> the document. Results are (host, role, action, status, result)."""

    def made(results, plan=None):
        file = PreviewFile(tmp_path / "results.jsonl")
        for host, role, action, status, result in results:
            file.add(host, role, f"{role} : A task" if role else "A task", action, status, result)
        found = preview_of(
            plan or planned(tmp_path), parse_events(file.path.read_text() if results else "")
        )
        assert list(check_schema(json.loads(json.dumps(found)), "preview-1")) == []
        return found

    return made


def outcomes(found):
    return {
        row["host"]: [(one["role"], one["outcome"]) for one in row["roles"]]
        for row in found["hosts"]
    }


def test_each_role_would_change_refuses_or_has_nothing_to_do(preview):
    found = preview([
        ("a", "gpu_driver", "copy", "ok", {"changed": True, "diff": [FILE]}),
        ("b", "gpu_driver", "command", "ok", {"changed": False}),
        ("c", "gpu_driver", "assert", "failed", {"msg": "expected no GPU operator, found one"}),
    ])  # fmt: skip
    assert outcomes(found) == {
        "a": [("gpu_driver", "would change")],
        "b": [("gpu_driver", "no change")],
        "c": [("gpu_driver", "refuses")],
    }
    assert found["hosts"][0]["roles"][0]["changes"] == [
        {
            "task": "A task",
            "diffs": [
                {"name": "/etc/x.conf", "added": 2, "removed": 1, "lines": ["-b", "+c", "+d"]}
            ],
        }
    ]
    shown = render_preview(found)
    assert "  gpu_driver       not possible  expected no GPU operator, found one" in shown
    assert "  gpu_driver       would change  /etc/x.conf (+2 -1 lines)" in shown
    assert "  gpu_driver       no change     nothing to do for policy-driver-version" in shown
    assert (
        "3 nodes: 1 cannot be changed as planned, 1 would change, 1 need no change; 6 reboots at"
        " most" in " ".join(shown.split())
    )
    assert shown.index("not possible") < shown.index("would change")


def test_a_role_that_was_not_reached_is_not_said_to_have_nothing_to_do(preview):
    found = preview(
        [("a", "", "assert", "failed", {"msg": "a is not proved healthy: unreachable"})]
    )
    assert outcomes(found) == {host: [("gpu_driver", "not played")] for host in HOSTS}
    shown = render_preview(found)
    assert "  the node         not possible  is not proved healthy: unreachable" in shown
    assert "3 nodes: 3 cannot be changed as planned" in shown


def test_a_change_that_shows_no_difference_and_those_of_a_loop_are_changes(preview):
    loop = {
        "changed": True,
        "results": [
            {"changed": True, "diff": {**FILE, "after_header": "/etc/one"}},
            {"changed": False, "diff": FILE},
        ],
    }
    found = preview(
        [
            ("a", "gpu_driver", "service", "ok", {"changed": True}),
            ("a", "gpu_driver", "copy", "ok", loop),
        ]
    )
    changes = found["hosts"][0]["roles"][0]["changes"]
    assert [[diff["name"] for diff in one["diffs"]] for one in changes] == [[], ["/etc/one"]]
    assert "A task" in render_preview(found)


def test_nodes_that_only_root_may_change_are_named_in_one_line(preview):
    lock = {"changed": False, "acquired": False, "previews": True}
    found = preview([
        ("a", "", "node_lock", "ok", {**lock, "needs_root": False}),
        ("b", "", "command", "ok", {}),
        ("b", "", "node_lock", "ok", {**lock, "needs_root": True}),
        ("c", "", "node_lock", "failed", {"msg": "Permission denied", "needs_root": True}),
    ])  # fmt: skip
    assert {row["host"]: row["needs_root"] for row in found["hosts"]} == {
        "a": False,
        "b": True,
        "c": True,
    }
    advice = "add --ansible=--become, or set ansible_become: true in the inventory"
    assert (
        render_preview(found, 200).splitlines()[-1]
        == f"b,c: --apply needs root there, and the connecting user may not lock the node; {advice}"
    )


def test_a_preview_as_root_does_not_speak_of_root(preview):
    found = preview(
        [
            (
                "a",
                "",
                "node_lock",
                "ok",
                {"changed": False, "acquired": False, "previews": True, "needs_root": False},
            )
        ]
    )
    assert "needs root" not in render_preview(found)


def test_what_a_role_reports_is_shown(preview):
    reported = [{"file": None, "why": "the driver does not answer"}, {"why": "no daemon"}]
    found = preview(
        [
            ("a", "gpu_driver", "debug", "ok", {"msg": reported}),
            ("a", "gpu_driver", "debug", "ok", {"msg": reported}),
        ]
    )
    assert found["hosts"][0]["roles"][0]["reports"] == ["the driver does not answer; no daemon"]
    assert "reports: the driver does not answer; no daemon" in render_preview(found)


def test_nodes_with_the_same_outcome_stand_together_and_what_reboots_is_said(preview):
    shown = render_preview(
        preview(
            [(host, "gpu_driver", "copy", "ok", {"changed": True, "diff": FILE}) for host in HOSTS]
        )
    )
    assert "a,b,c (3 nodes)\n  gpu_driver       would change" in shown
    assert "  reboot           2 at most     kernel; driver" in shown


def test_what_the_plan_refuses_is_in_the_table_although_no_role_was_played(preview, tmp_path):
    plan = planned(tmp_path)
    plan = replace(
        plan,
        hosts=(
            *plan.hosts,
            HostPlan("d", None, None, refused=(Refused("role kernel: no boot loader"),)),
        ),
    )
    assert "d\n  the plan         not possible  role kernel: no boot loader" in render_preview(
        preview([], plan)
    )


def test_one_node_never_fills_more_than_a_screen_or_two_and_the_wide_form_has_all(
    preview, tmp_path
):
    plan = planned(tmp_path)
    roles = (
        "kernel",
        "gpu_driver",
        "fabric_manager",
        "nccl_profile",
        "build_toolchain",
        "gpu_binding",
        "host_tuning",
        "package_hold",
    )
    host = replace(plan.hosts[0], remedies=tuple(Remedy(role, {}, ("r",)) for role in roles))
    plan = replace(plan, hosts=(host,), waves=plan.waves[:1])
    diffs = [
        {**FILE, "after": "x\n" * 300, "after_header": f"/etc/{number}"} for number in range(100)
    ]
    results = [("a", role, "copy", "ok", {"changed": True, "diff": diffs}) for role in roles]
    results += [
        ("a", role, "debug", "ok", {"msg": f"{number} " + "word " * 900})
        for role in roles
        for number in range(9)
    ]
    found = preview(results, plan)
    assert len(render_preview(found).splitlines()) < 110
    assert "and 96 more changes" in render_preview(found)


def test_many_nodes_with_an_outcome_of_their_own_are_counted_behind_the_first_ones(
    preview, tmp_path
):
    plan = planned(tmp_path)
    names = [f"n{number:04d}" for number in range(1000)]
    hosts = tuple(replace(plan.hosts[0], host=name) for name in names)
    plan = replace(plan, hosts=hosts, waves=(replace(plan.waves[0], hosts=tuple(names)),))
    results = [
        (
            name,
            "gpu_driver",
            "copy",
            "ok",
            {"changed": True, "diff": {**FILE, "after_header": f"/{name}"}},
        )
        for name in names
    ]
    results[::100] = [
        (name, "gpu_driver", "assert", "failed", {"msg": f"of {name}"}) for name in names[::100]
    ]
    shown = render_preview(preview(results, plan))
    assert len(shown.splitlines()) < 180
    assert all(f"not possible  of {name}" in shown for name in names[::100])
    assert "and 970 more nodes, each with another outcome: 970 would change" in shown


def test_nothing_of_a_node_is_obeyed_by_the_terminal(preview):
    hostile = "red \x1b[31m \u202e\n"
    diff = {"before": "", "after": hostile * 3, "after_header": hostile}
    results = [
        ("a", "gpu_driver", "copy", "ok", {"changed": True, "diff": diff}),
        ("b", "gpu_driver", "x", "failed", {"msg": hostile}),
    ]
    results += [("c", "gpu_driver", "debug", "ok", {"msg": hostile})]
    shown = render_preview(preview(results))
    assert all(letter.isprintable() or letter == "\n" for letter in shown)


def test_a_line_that_was_cut_off_is_left_out():
    assert parse_events('{"host": "a"}\n{"host": "b') == [{"host": "a"}]
