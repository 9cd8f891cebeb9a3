"""Verdicts of other health monitors that lie on the node, and when they count no more."""

from __future__ import annotations

import json
import os

import pytest
from recorded_roots import copied, facts, unread

from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.facts.sections.monitors import FOLDER, NHC_LOG, read_monitors

NOW_S, DAY_S = 1_800_000_000.0, 86400.0
NAMES = frozenset({"gpu001", "a" * 32})

DCGM_HEALTH = {
    "header": ["Health Monitor Report"],
    "body": {
        "Overall Health": {"value": "Failure"},
        "GPU": {"children": {
            "3": {"value": "Failure", "children": {"Errors": {"children": {
                "Memory system": {"value": "Failure", "overflow": ["DBE in", "GPU 3."]},
                "PCIe system": {"value": "Warning", "overflow": [{"value": "replays"}]},
            }}}},
            "4": {"value": "Healthy"},
        }},
    },
}  # fmt: skip


def diag(*results, name="DCGM GPU Diagnostic"):
    """Output of dcgmi diag -j with these results of one test."""
    tests = [{"name": "PCIe", "results": list(results)}, None]
    return {name: {"test_categories": [{"category": "Integration", "tests": tests}]}}


def node(*conditions, name="gpu001"):
    """A node of the Kubernetes API with these conditions beside a good kubelet."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"conditions": [ready, *conditions]},
    }


NVSENTINEL = {
    "type": "GpuPcieWatch", "status": "True", "reason": "GpuPcieWatchIsNotHealthy",
    "message": "ErrorCode:DCGM_FR_PCI_REPLAY_RATE GPU:0", "lastTransitionTime":
    "2026-11-20T10:00:00Z",
}  # fmt: skip


def left(tmp_path, document, name="one.json", age_s=60.0):
    """Leaves a document on the node in tmp_path; returns its path there."""
    path = tmp_path / FOLDER.lstrip("/") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(0o644)
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return path


def seen(tmp_path, uptime_s=30 * DAY_S):
    """(rows, unread rows) of the node in tmp_path."""
    noted = Unread()
    return read_monitors(Root([str(tmp_path)]), noted, NAMES, NOW_S, uptime_s), noted.rows


def short(rows):
    """What the tests below compare."""
    return [(row["source"], row["of"], row["verdict"], row["text"]) for row in rows]


def test_a_node_without_monitors_has_none(tmp_path):
    assert facts(copied("h200x8", tmp_path), "node")["monitors"] == []
    assert not [name for name in unread(tmp_path / "h200x8", "node") if "monitor" in name]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (DCGM_HEALTH, [
            ("dcgm-health", "GPU 3: Memory system", "failed", "DBE in GPU 3."),
            ("dcgm-health", "GPU 3: PCIe system", "degraded", "replays"),
        ]),
        ({"body": {"Overall Health": {"value": "Healthy"}}}, [("dcgm-health", "node", "ok",
            "Healthy")]),
        ({"body": {"Overall Health": {"value": "Warning"}}}, [("dcgm-health", "node", "degraded",
            "Warning")]),
        (diag({"gpu_ids": "0", "status": "Pass"}, {"gpu_ids": "1", "status": "Fail",
            "warnings": ["link width"]}), [("dcgm-diag", "PCIe on GPU 1", "failed", "link width")]),
        (diag({"entity_group": "GPU", "entity_id": 5, "status": "Warn",
            "warnings": [{"error_id": 1, "warning": "slow"}]}, name="DCGM Diagnostic"),
            [("dcgm-diag", "PCIe on GPU 5", "degraded", "slow")]),
        (diag({"gpu_ids": "0", "status": "PASS"}), [("dcgm-diag", "node", "ok", "")]),
        ({"DCGM Diagnostic": {"runtime_error": "no GPU"}}, [("dcgm-diag", "the diagnostic itself",
            "degraded", "no GPU")]),
        ({"overall_severity": "CRITICAL", "affected_components": [{"category": "gpu",
            "entities": ["GPU-a"], "check_ids": ["gpu_count"], "max_severity": "CRITICAL"}]},
            [("nvidia-health-validation", "gpu GPU-a", "failed", "gpu_count")]),
        ({"overall_severity": "UNKNOWN"}, [("nvidia-health-validation", "node", "degraded",
            "UNKNOWN")]),
        ({"overall_severity": "INFO"}, [("nvidia-health-validation", "node", "ok", "INFO")]),
        (node(NVSENTINEL), [("kubernetes", "GpuPcieWatch", "failed",
            "True, GpuPcieWatchIsNotHealthy: ErrorCode:DCGM_FR_PCI_REPLAY_RATE GPU:0")]),
        (node({"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error",
            "message": "x"}), [("kubernetes", "AcceleratedHardwareReady", "failed",
            "False, NvidiaXID79Error: x")]),
        (node({"type": "DiskPressure", "status": "True", "reason": "r", "message": "m"}),
            [("kubernetes", "DiskPressure", "degraded", "True, r: m")]),
        (node({"type": "DiskPressure", "status": "False"}, {"type": "EtcdIsVoter",
            "status": "True"}, {"type": "UnhangProblem", "status": "True"}),
            [("kubernetes", "node", "ok", "")]),
        ({"kind": "List", "items": [node(NVSENTINEL, name="gpu002"), node()]},
            [("kubernetes", "node", "ok", "")]),
        ([{"component": "disk", "states": [{"health": "Healthy"}]}, {"component":
            "accelerator-nvidia-ecc", "states": [{"health": "Unhealthy", "reason": "ecc",
            "time": "2026-11-20T10:00:00Z"}]}],
            [("gpud", "accelerator-nvidia-ecc", "failed", "ecc")]),
        ({"nodes": [{"name": "gpu001", "state": ["IDLE", "DRAIN"], "reason": "NHC: no ib0"}]},
            [("slurm", "DRAIN+IDLE", "failed", "NHC: no ib0")]),
        ({"nodes": [{"name": "gpu001", "state": "idle", "state_flags": ["DRAIN"],
            "reason": "move to rack 4"}]}, [("slurm", "DRAIN+IDLE", "degraded", "move to rack 4")]),
        ({"nodes": [{"name": "gpu001", "state": ["IDLE", "DRAIN"], "reason": "unhang: plan 4"}]},
            [("slurm", "node", "ok", "")]),
    ],
)  # fmt: skip
def test_a_document_is_known_by_its_shape_and_its_worst_words_come_first(
    tmp_path, document, expected
):
    left(tmp_path, document)
    rows, noted = seen(tmp_path)
    assert (short(rows), noted) == (expected, [])
    assert all(row["path"] == FOLDER + "/one.json" for row in rows)


def test_a_verdict_says_since_when_where_the_monitor_does(tmp_path):
    left(tmp_path, node(NVSENTINEL))
    left(tmp_path, {"nodes": [{"name": "gpu001", "state": ["DOWN"], "reason": "Not responding",
        "reason_changed_at": {"set": True, "number": 1769096589}}]}, "two.json")  # fmt: skip
    assert [row["since"] for row in seen(tmp_path)[0]] == [
        "2026-11-20T10:00:00Z",
        "2026-01-22T15:43:09Z",
    ]


@pytest.mark.parametrize(
    ("age_s", "uptime_s", "counts_as"),
    [
        (60.0, 30 * DAY_S, "failed"),
        (8 * DAY_S, 30 * DAY_S, "stale"),
        (3600.0, 60.0, "stale"),
        (3600.0, None, "failed"),
    ],
)
def test_an_old_verdict_and_one_from_before_the_boot_are_stale(
    tmp_path, age_s, uptime_s, counts_as
):
    left(tmp_path, node(NVSENTINEL), age_s=age_s)
    (row,) = seen(tmp_path, uptime_s)[0]
    assert (row["verdict"], row["counts_as"], row["age_s"]) == ("failed", counts_as, age_s)


def test_the_times_of_recorded_files_mean_nothing(tmp_path):
    left(tmp_path, node(NVSENTINEL), age_s=1e9)
    (row,) = read_monitors(Root([str(tmp_path)]), Unread(), NAMES, None, 60.0)
    assert (row["counts_as"], row["age_s"]) == ("failed", None)


FAILURE = "Health check failed:  check_fs_mount:  /scratch not mounted"
OFFLINE = f"20260612 18:47:38 [slurm] /usr/libexec/nhc/node-mark-offline gpu001 {FAILURE}"
ONLINE = "20260612 18:47:38 [slurm] /usr/libexec/nhc/node-mark-online gpu001"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([FAILURE, OFFLINE, f"ERROR:  nhc:  {FAILURE}"], [("nhc", "check_fs_mount", "failed",
            "/scratch not mounted")]),
        ([FAILURE, ONLINE], [("nhc", "node", "ok", "")]),
        ([FAILURE, "Node Health Check completed successfully (1s)."], [("nhc", "node", "ok", "")]),
        ([ONLINE, FAILURE], [("nhc", "check_fs_mount", "failed", "/scratch not mounted")]),
        (["Node Health Check starting."], []),
        ([], []),
    ],
)  # fmt: skip
def test_the_end_of_nhcs_log_counts(tmp_path, lines, expected):
    path = left(tmp_path, "".join(line + "\n" for line in lines), "../../../log/nhc.log")
    assert path.resolve() == tmp_path / NHC_LOG.lstrip("/")
    assert short(seen(tmp_path)[0]) == expected


def test_a_failure_that_nhc_did_not_repeat_for_a_day_is_stale(tmp_path):
    left(tmp_path, FAILURE + "\n", "../../../log/nhc.log", age_s=1.1 * DAY_S)
    assert [row["counts_as"] for row in seen(tmp_path)[0]] == ["stale"]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "one.json: "),
        ("[" * 100_000, "nested"),
        ({"a": 1}, "no document of dcgm-health, dcgm-diag"),
        (node(NVSENTINEL, name="gpu002"), "none of its nodes has this node's"),
        ({"nodes": [{"name": {"x": 1}, "hostname": [], "state": []}]}, "none of its nodes"),
        ("x" * (5 << 20), "at most 4194304 are read"),
    ],
)
def test_what_is_no_verdict_of_this_node_is_unread_with_its_reason(tmp_path, document, reason):
    left(tmp_path, document)
    rows, noted = seen(tmp_path)
    assert rows == []
    assert [reason in row["reason"] for row in noted] == [True]


def test_a_strangers_text_is_cut_and_has_no_control_characters(tmp_path):
    said = "\x1b[2J\nno\u202e " + "x" * 5000
    left(tmp_path, node(dict(NVSENTINEL, type=said, message=said)))
    (row,) = seen(tmp_path)[0]
    assert row["of"].isprintable() and row["text"].isprintable()
    assert (len(row["of"]), len(row["text"])) == (128, 300)


def test_a_file_that_every_user_may_write_and_a_link_are_refused(tmp_path):
    left(tmp_path, node(NVSENTINEL)).chmod(0o666)
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps(node(NVSENTINEL)))
    (tmp_path / FOLDER.lstrip("/") / "two.json").symlink_to(secret)
    rows, noted = seen(tmp_path)
    assert rows == []
    assert ["every user may write it" in noted[0]["reason"], "symbolic link" in
        noted[1]["reason"]] == [True, True]  # fmt: skip


def test_most_documents_and_rows_have_an_end(tmp_path):
    left(tmp_path, node(*[dict(NVSENTINEL, type=f"C{number}") for number in range(500)]))
    for number in range(40):
        left(tmp_path, node(NVSENTINEL), f"x{number}.json")
    assert len(seen(tmp_path)[0]) == 16 + 15
