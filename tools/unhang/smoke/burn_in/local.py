"""Starts the burn-in's agent on this machine and reads its events. If this process ends, the agent ends too, with its workers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unhang.core.child_processes import die_with_parent, end_process
from unhang.core.errors import UserError
from unhang.core.verdict.streams import Event
from unhang.smoke.burn_in.events import parse_burn_in, parse_burn_in_event
from unhang.smoke.local import listen

ENDS = ("burn_end", "refused")  # the last event of a complete burn-in
BEYOND_S = 750.0  # for dcgmi diag, imports, expected results, the last round and the end
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)?")
SHORTEST_S, LONGEST_S = 1.0, 7 * 86400.0
DRILLED = ("bfloat16", "float16", "float8_e4m3fn", "int8", "tf32", "float32", "memory", "collective")


def burn_in_path(project: Path) -> Path:
    """The payload in the checkout."""
    return project / "roles" / "smoke_test" / "files" / "unhang_burn_in.py"


def parse_duration(text: str, option: str) -> float:
    """Seconds of 90, 90s, 30m, 1.5h. Raises UserError."""
    found = DURATION.fullmatch(text)
    seconds = float(found[1]) * UNITS[found[2] or ""] if found else 0.0
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise UserError(f"{option}: expected a time such as 90s, 30m or 2h, up to a week, found {text!r}")
    return seconds


def parse_burn_drill(text: str) -> dict[str, Any]:
    """GPU:WHERE as the payload takes it. Raises UserError."""
    gpu, _, where = text.partition(":")
    if not gpu.isdigit() or where not in DRILLED:
        raise UserError(f"--drill: expected GPU:WHERE with --burn-in, such as 0:bfloat16 (of {', '.join(DRILLED)}), found {text!r}")
    return {"gpu": int(gpu), "where": where}


def run_burn_in(plan: Mapping[str, Any], payload: Path, on_event: Callable[[str, Event], None]) -> list[Event]:
    """All events of a burn-in here, to its end. plan: of the payload."""
    argv = [sys.executable, str(payload), "node", "--plan", json.dumps({**plan, "watch_stdin": True})]
    agent = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 -- one call of prctl, nothing that takes a lock
    )  # fmt: skip
    deadline = time.monotonic() + float(plan["duration_s"]) + BEYOND_S
    with agent:
        try:
            output, errors = listen(agent, "", deadline, on_event, parse_burn_in_event)
        finally:
            end_process(agent)
    events = parse_burn_in(output.split(b"\n"))
    if not any(event["e"] in ENDS for event in events):
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        why = f"the burn-in's agent ended with code {agent.returncode}" + (f": {lines[-1][:300]}" if lines else "")
        events.append({"e": "refused", "reasons": [why]})
    return events
