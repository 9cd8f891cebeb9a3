"""Run folders for the reports' tests: documents as the judge and the audit write them, small or
large, normal or hostile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unhang.judge.fleet.judged_node import JudgedNode
from unhang.judge.rules.found import Found
from unhang.judge.triage.causes import triage
from unhang.judge.triage.grouping import Explaining
from unhang_node.base.version import VERSION

UNREAD = ("node-unreachable", "node-timeout", "node-answer-invalid", "node-missing", "node-failed")
H200, A6000, RTX3090 = "NVIDIA H200", "NVIDIA RTX A6000", "NVIDIA GeForce RTX 3090"


def finding(
    rule: str, host: str | None, severity: str, title: str, expected: str, found: str, **more: Any
) -> dict[str, Any]:
    """One finding with every key that contract 2 requires."""
    made: dict[str, Any] = {
        "rule": rule,
        "title": title,
        "severity": severity,
        "scope": "node",
        "verdict": "fail",
        "host": host,
        "where": {},
        "expected": expected,
        "found": found,
        "evidence": [],
        "missing": [],
        "remedy": None,
        "workaround": None,
        "confidence": "documented",
        "situations": [],
        "sources": [{"url": "https://docs.nvidia.com/deploy/", "says": "how it should be"}],
    }
    made.update(more)
    return made


def document(
    findings: list[dict[str, Any]],
    nodes: dict[str, int],
    rules: int = 87,
    passed: int = 0,
    explains: dict[str, frozenset[str]] | None = None,
    **run: Any,
) -> dict[str, Any]:
    """The object of findings.json around some findings."""
    verdicts = [entry["verdict"] for entry in findings]
    severities = [entry["severity"] for entry in findings if entry["verdict"] == "fail"]
    by_rule: dict[str, dict[str, int]] = {}
    for entry in findings:
        counts = by_rule.setdefault(
            entry["rule"], {"fail": 0, "pass": 0, "unknown": 0, "skip": 0, "waived": 0}
        )
        counts[entry["verdict"]] += 1
    made = {
        "schema": "unhang/findings/1",
        "run": {
            "id": "2026-03-02T031407Z",
            "started": "2026-03-02T03:14:07Z",
            "finished": "2026-03-02T03:14:31Z",
            "judged": "2026-03-02",
            **run,
        },
        "host_count": sum(nodes.values()),
        "nodes": nodes,
        "catalogue": {"rules": rules, "evaluations": 1200, "stopped": [], "refused": []},
        "totals": {
            "fail": verdicts.count("fail"),
            "pass": passed,
            "unknown": verdicts.count("unknown"),
            "skip": 0,
            "waived": verdicts.count("waived"),
        },
        "totals_by_severity": {
            severity: severities.count(severity)
            for severity in ("critical", "error", "warning", "info")
            if severity in severities
        },
        "totals_by_rule": by_rule,
        "findings": findings,
    }
    return made | triage(
        failures(findings),
        Explaining(explains or {}),
        notes(findings, sum(nodes.values()), nodes.get("ok", 0)),
    )


def findings_that_say(text: str) -> list[dict[str, Any]]:
    """A failure, one without a verdict and a waived one, with `text` wherever a node can put it."""
    return [
        finding(
            text[:60],
            text,
            "critical",
            text,
            text,
            text,
            owner="vendor",
            where={"index": 0, "uuid": text, "name": text},
            evidence=[{"path": "interconnect." + text, "value": {text[:9]: [text]}}],
            confidence=text,
            remedy={"person": text},
            workaround={"what": text, "cost": text},
            sources=[
                {"url": text, "says": text},
                {"url": "javascript:alert(1)", "says": ""},
                {"url": "https://" + text, "says": ""},
            ],
        ),
        finding(
            "r",
            text,
            "error",
            text,
            "",
            "",
            verdict="unknown",
            missing=[{"path": text, "status": "error", "reason": text}],
        ),
        finding(
            "r",
            text,
            "error",
            text,
            "",
            "",
            verdict="waived",
            waiver={"reason": text, "by": text, "until": text},
        ),
    ]


def compared_with_a_faulty_node() -> dict[str, Any]:
    """gpu1 has lost a GPU, and only so differs from gpu2, which is healthy. The comparison names
    both."""
    counts = [
        {"value": value, "count": 1, "hosts": [host]}
        for host, value in (("gpu1", "7"), ("gpu2", "8"))
    ]
    both = {
        "scope": "group",
        "hosts": ["gpu1", "gpu2"],
        "comparison": {"majority": None, "counts": counts},
    }
    rows = [
        finding("lost", "gpu1", "critical", "A GPU is lost", "e", "f"),
        finding("links-differ", None, "error", "Links differ", "e", "f", **both),
    ]
    return document(rows, {"ok": 2}, explains={"lost": frozenset({"links-differ"})})


def failures(findings: list[dict[str, Any]]) -> Iterator[Found]:
    """The input of triage for these findings."""
    for number, one in enumerate(findings):
        if one["verdict"] == "fail":
            hosts = one.get("hosts") or ([one["host"]] if one["host"] is not None else [])
            apart = tuple(
                frozenset(row["hosts"]) for row in (one.get("comparison") or {}).get("counts") or ()
            )
            remedy = one["remedy"] or {}
            yield Found(
                number,
                one["rule"],
                one["title"],
                one["severity"],
                one["scope"],
                tuple(hosts),
                one["where"],
                remedy,
                apart,
                one["rule"] in UNREAD,
                one.get("owner", "sre"),
            )


def notes(findings: list[dict[str, Any]], meant: int, read: int) -> dict[str, JudgedNode]:
    """The given number of hosts, those of the findings first; a host is unread when a finding says
    so, or when the findings leave no host that was read."""
    hosts = {
        host for one in findings for host in one.get("hosts") or [one["host"]] if host is not None
    }
    unread = {one["host"] for one in findings if one["rule"] in UNREAD}
    silent = [f"healthy{number:05d}" for number in range(meant - len(hosts))]
    hosts |= set(silent)
    unread |= set(silent[: max(0, meant - read - len(unread))])
    return {host: JudgedNode(host not in unread) for host in sorted(hosts)}


def node(
    host: str,
    groups: list[str],
    facts: dict[str, Any] | None,
    status: str = "ok",
    message: str | None = None,
) -> dict[str, Any]:
    """A node document, schema unhang/node/1."""
    wrapped = (
        None
        if facts is None
        else {"schema": "unhang/node-facts/1", "collector": {"version": VERSION}, "sections": facts}
    )
    return {
        "schema": "unhang/node/1",
        "host": host,
        "groups": groups,
        "policy": {},
        "status": status,
        "message": message,
        "facts": wrapped,
    }


def sections(
    model: str,
    count: int,
    driver: str,
    kernel: str,
    nccl: str,
    *,
    nvlinks: int = 0,
    remote: str = "none",
    active: dict[int, int] | None = None,
    narrow: dict[int, int] | None = None,
    cut_off: set[tuple[int, int]] = frozenset(),
    ports: int = 0,
    ports_down: set[int] = frozenset(),
) -> dict[str, Any]:
    """The sections that reports look at."""
    ok = {"probe": {"status": "ok"}}
    half = max(1, count // 2)
    devices = [
        {
            "index": i,
            "uuid": f"GPU-{i:08x}-0000-0000-0000-000000000000",
            "pci_address": f"0000:{0x1B + 16 * i:02x}:00.0",
            "model": model,
            "numa_node": i // half,
            "pcie": {
                "generation_max": 5 if "H200" in model else 4,
                "width_now": (narrow or {}).get(i, 16),
                "width_max": 16,
            },
            "error": None,
        }
        for i in range(count)
    ]
    pairs = [
        {
            "a": a,
            "b": b,
            "read": "chipset_not_supported" if (a, b) in cut_off else "ok",
            "topology": "node" if a // half == b // half else "system",
            "nvlinks": nvlinks or 0,
        }
        for a in range(count)
        for b in range(a + 1, count)
    ]
    return {
        "gpus": {**ok, "count": count, "model": model, "devices": devices},
        "driver": {**ok, "loaded": {"is_loaded": True, "version": driver}},
        "kernel": {**ok, "release": kernel},
        "nccl": {
            **ok,
            "libraries": [{"path": "/usr/lib/x86_64-linux-gnu/libnccl.so.2", "version": nccl}],
        },
        "fabric_manager": {**ok, "nvswitch_count": 4 if remote == "switch" else 0},
        "interconnect": {
            **ok,
            "fabric_state": "completed" if remote == "switch" else "none",
            "pairs": pairs,
            "by_gpu": [
                {
                    "gpu": i,
                    "nvlinks": nvlinks,
                    "nvlinks_active": (active or {}).get(i, nvlinks),
                    "remote": remote,
                }
                for i in range(count)
            ],
        },
        "network": {
            **ok,
            "rdma": [
                {
                    "name": f"mlx5_{i}",
                    "numa_node": i // max(1, ports // 2),
                    "ports": [
                        {
                            "port": 1,
                            "state": "down" if i in ports_down else "active",
                            "rate_gbps": 400,
                            "link_layer": "infiniband",
                        }
                    ],
                }
                for i in range(ports)
            ],
        },
    }


def h200(**more: Any) -> dict[str, Any]:
    return sections(
        H200,
        8,
        "570.133.20",
        "6.8.0-57-generic",
        "2.26.2+cuda12.8",
        nvlinks=18,
        remote="switch",
        ports=8,
        **more,
    )


def write_run(folder: Path, findings: dict[str, Any], nodes: list[dict[str, Any]]) -> Path:
    """The run folder on disk, as audit and judge write it."""
    (folder / "nodes").mkdir(parents=True)
    run = {
        "schema": "unhang/run/1",
        "id": findings["run"]["id"],
        "started": findings["run"]["started"],
        "finished": findings["run"]["finished"],
        "inventory": "inventory/mycluster",
        "limit": None,
        "hosts": [entry["host"] for entry in nodes],
        "controller": {"unhang": "0.1.0", "ansible_core": "2.19.4", "python": "3.11.7"},
        "policy_sources": [],
    }
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "findings.json").write_text(json.dumps(findings))
    for number, entry in enumerate(nodes):
        (folder / "nodes" / f"{number:05d}.json").write_text(json.dumps(entry))
    return folder
