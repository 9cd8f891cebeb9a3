"""The page of a large fleet is small enough for a browser to open at once."""

from __future__ import annotations

import fleets

from unhang.audit.report.html import render_page
from unhang.audit.report.run import summarise_node


def test_a_thousand_nodes_stay_under_five_megabytes():
    nodes = [
        fleets.node(
            f"gpu{host:04d}",
            ["gpu", f"rack{host // 100}"],
            fleets.h200(active={host % 8: 17 - host % 5} if host % 3 == 0 else None),
        )
        for host in range(1000)
    ]
    findings = [
        fleets.finding(
            f"rule-{rule}",
            f"gpu{host:04d}",
            "error",
            f"Title of rule {rule}, as long as titles are",
            "18 links",
            f"GPU {host % 8} has {rule} links",
            where={"index": host % 8},
            evidence=[{"path": f"interconnect.by_gpu[{host % 8}].nvlinks_active", "value": rule}],
        )
        for rule in range(50)
        for host in range(1000)
    ]
    text = render_page(
        fleets.document(findings, {"ok": 1000}), {}, [summarise_node(entry) for entry in nodes]
    )
    assert len(text.encode()) < 5_000_000
    assert text.count('class="joined"') <= 24
