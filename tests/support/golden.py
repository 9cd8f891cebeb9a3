"""Golden outputs of the terminal table. A file's name has the fleet, the columns and the exit code;
`python tests/support/golden.py` writes all of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import five_situations
import fleets

FOLDER = Path(__file__).parents[1] / "unit" / "unhang" / "audit" / "report" / "golden"


def cases() -> dict[str, dict[str, Any]]:
    """Name -> findings document."""
    unread = [
        {
            "path": "interconnect.acs",
            "status": "denied",
            "reason": "needs root to read PCI configuration space",
        }
    ]
    unknown = [
        fleets.finding(
            "acs-breaks-p2p",
            f"gpu{i:03d}",
            "warning",
            "PCI bridges send peer traffic through the root",
            "ACS off",
            "",
            verdict="unknown",
            missing=unread,
        )
        for i in (1, 2, 3)
    ]
    return {
        "five_situations": five_situations.fleet()[0],
        "nothing_found": fleets.document([], {"ok": 16}, passed=1392),
        "only_unknowns": fleets.document(unknown, {"ok": 3}, passed=80),
        "no_nodes": fleets.document([], {}),
    }


def exit_code(findings: dict[str, Any]) -> int:
    return int(any(findings["totals_by_severity"].values()))


def outputs() -> dict[str, str]:
    """File name -> text."""
    from unhang.audit.report.screen import render_screen
    from unhang.audit.report.table import render_table
    from unhang.core.json_text import render_json
    from unhang.core.run.actions import Setting

    here = Setting(inventories=("inventory/mycluster",))  # as in run.json of these fleets
    made = {}
    for name, findings in cases().items():
        for width in (80, 100, 120, 200) if name == "five_situations" else (100,):
            made[f"{name}.{width}.exit{exit_code(findings)}.txt"] = render_table(
                findings, width, setting_of=lambda cause: here
            )
    findings = cases()["five_situations"]
    made[f"five_situations.ascii.exit{exit_code(findings)}.txt"] = render_table(
        findings, 100, plain=True, setting_of=lambda cause: here
    )
    for name, findings in cases().items():
        for width in (80, 120) if name == "five_situations" else (80,):
            made[f"{name}.screen.{width}.exit{exit_code(findings)}.txt"] = render_screen(
                findings, width
            )
    made["only_unknowns.exit0.json"] = render_json(cases()["only_unknowns"])
    return made


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for file_name, text in outputs().items():
        (FOLDER / file_name).write_text(text, encoding="utf-8")
    json.dump(sorted(outputs()), sys.stdout, indent=1)
