"""What a burn-in measured, and whom that accuses besides the ranks that found a wrong bit. Values
in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.core.text import counted, visible
from unhang.core.verdict.streams import Event, Story, Stream
from unhang.core.verdict.suspects import Suspect
from unhang.smoke.bandwidth import stragglers
from unhang.smoke.node_plans import OPTIONAL, PHASES, Request
from unhang_node.base.parse.values import as_map, as_maps, number_of

BEYOND_S = 660.0  # for dcgmi diag and the expected results
MEETING_S = 400.0  # for nodes whose dcgmi diag takes longer
# share of the median: healthy GPUs of one model at their power cap differ by a few percent
LEAST_SPREAD = 0.03
NEXT = "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; dcgmi diag -r 3 on {host}"
ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # of DCGM 2 and 3, and of DCGM 4
# Tests of the driver's and the system's settings, which are no fault of a GPU. In DCGM 4 their
# names stand in front of the warnings of the test `software`.
SETTINGS = ("Denylist", "Blacklist", "NVML Library", "CUDA Main Library", "CUDA Toolkit Libraries", "Permissions and OS Blocks", "Persistence Mode",  # noqa: E501
            "Environment Variables", "Graphics Processes", "Fabric Manager")  # fmt: skip
# DCGM_ERROR_CONFIG:
# https://docs.nvidia.com/datacenter/dcgm/latest/reference/diagnostics/errors.html
CONFIGURATION = 5


def with_burn_in(request: Request, seconds: float) -> Request:
    """The request with a burn-in after its other phases, and time for it. Without GPUs it is
    refused, unless the CPU was asked for."""
    usual = request.phases or tuple(name for name in PHASES if name not in OPTIONAL)
    phases = tuple(name for name in PHASES if name in (*usual, "burn_in"))
    total_s = request.total_timeout_s + seconds + BEYOND_S
    backend = "nccl" if request.backend == "auto" else request.backend
    return replace(
        request,
        backend=backend,
        phases=phases,
        burn_in_s=seconds,
        total_timeout_s=total_s,
        rendezvous_timeout_s=MEETING_S,
    )


def burn_in_of(streams: Sequence[Stream], reported: Mapping[int, Story]) -> dict[str, Any] | None:
    """{ranks: [{rank, host, gpu, types: {name: {results, tflop_s}}, left_out, sm_mhz, power_w,
    temperature_c, held_back}], dcgm: [...]}, None without one."""
    ranks = [_rank(story) for story in reported.values() if "burn_in" in story.begun]
    dcgm = [
        read_dcgm(stream.host, event)
        for stream in streams
        for event in stream.events
        if event["e"] == "dcgm"
    ]
    return {"ranks": ranks, "dcgm": dcgm} if ranks or dcgm else None


def _rank(story: Story) -> dict[str, Any]:
    found = as_map((story.phases.get("burn_in") or {}).get("result"))
    clocks, types = as_map(found.get("clocks")), list(as_map(found.get("types")).items())[:16]
    left_out = {
        str(name)[:40]: str(why)[:300] for name, why in as_map(found.get("left_out")).items()
    }
    return {
        "rank": story.rank, "host": story.host, "gpu": story.gpu, "left_out": left_out,
        "types": {str(name)[:40]: {key: number_of(as_map(row).get(key)) for key in ("results",
        "tflop_s")} for name, row in types},
        "held_back": {str(name)[:40]: number_of(share) for name,
        share in as_map(clocks.get("held_back")).items()},
        **{name: number_of(clocks.get(name)) or None for name in ("sm_mhz", "power_w",
        "temperature_c")},
    }  # fmt: skip


def burn_in_suspects(
    found: Mapping[str, Any] | None, reported: Mapping[int, Story]
) -> list[Suspect]:
    """Nodes that DCGM fails, and GPUs that are slow beside the others in a type, with their
    clocks."""
    if found is None:
        return []
    suspects: dict[tuple[str, int | None], Suspect] = {
        (row["host"], None): Suspect(row["host"], None, None, "burn_in",
        f"dcgmi diag: {'; '.join(row['failed'][:8])}", NEXT.format(host=row["host"]))
        for row in found["dcgm"] if row["failed"]
    }  # fmt: skip
    rows = {row["rank"]: row for row in found["ranks"]}
    for name in dict.fromkeys(name for row in rows.values() for name in row["types"]):
        times = {
            rank: 1 / row["types"][name]["tflop_s"]
            for rank, row in rows.items()
            if row["types"].get(name, {}).get("tflop_s")
        }
        for rank, took, median in stragglers(times, LEAST_SPREAD):
            story, why = (
                reported[rank],
                (
                    f"{took / median - 1:.0%} slower than the median of {len(times)} GPUs in"
                    f" {name}: {_load(rows[rank])}"
                ),
            )
            suspects.setdefault(
                (story.host, rank),
                Suspect(story.host, rank, story.gpu, "burn_in", why, NEXT.format(host=story.host)),
            )
    return list(suspects.values())


def read_dcgm(host: str, event: Event) -> dict[str, Any]:
    """{host, level, verdict, failed, notes}. verdict: fail; pass only if every test ran and passed;
    incomplete; not made. failed, notes: DCGM's own words."""
    answer, failed, notes = event.get("answer"), list[str](), list[str]()
    root: Event = next(
        (as_map(answer)[name] for name in ROOTS if isinstance(as_map(answer).get(name), dict)), {}
    )
    tests = [(test, result) for category in as_maps(root.get("test_categories")) for test in as_maps(category.get("tests"))  # noqa: E501
             for result in (as_maps(test.get("results")) or as_maps([test.get("test_summary")]) or [{}])][:2000]  # fmt: skip  # noqa: E501
    for test, result in tests:
        status, name, warnings = (
            str(result.get("status")).lower(),
            visible(str(test.get("name")), 60),
            result.get("warnings"),
        )
        shown = [
            row if isinstance(row, dict) else {"warning": row}
            for row in (warnings if isinstance(warnings, list) else [warnings])
            if row
        ]
        texts = [visible(" ".join(str(row.get("warning")).split()), 300) for row in shown]
        setting = shown and all(
            row.get("error_severity") == CONFIGURATION or text.startswith(SETTINGS)
            for row, text in zip(shown, texts, strict=True)
        )
        if status not in ("pass", "warn", "warning"):
            is_fault = status.startswith("fail") and name not in SETTINGS and not setting
            (failed if is_fault else notes).append(f"{name}: {'; '.join(texts) or status}")
    if not tests:
        why = answer if isinstance(answer, str) else root.get("runtime_error") or "no test in it"
        notes = [f"ended with code {event.get('code')}: {visible(' '.join(str(why).split()), 300)}"]
    whole = event.get("code") == 0 and not notes and not root.get("runtime_error")
    verdict = "fail" if failed else "not made" if not tests else "pass" if whole else "incomplete"
    said = {"failed": list(dict.fromkeys(failed)), "notes": list(dict.fromkeys(notes))}
    return {"host": host, "level": int(number_of(event.get("level"))), "verdict": verdict, **said}


def render_burn_in(result: Mapping[str, Any]) -> list[str]:
    """For people: TFLOP/s and clocks of each rank, then what DCGM said."""
    found, lines = result.get("burn_in") or {"ranks": [], "dcgm": []}, []
    for row in [row for row in found["ranks"] if row["types"]]:
        count = counted(int(sum(one["results"] for one in row["types"].values())), "result")
        speeds = ", ".join(f"{name} {one['tflop_s']:g}" for name, one in row["types"].items())
        lines.append(
            f"burn-in, rank {row['rank']} on {row['host']}: {count} compared; TFLOP/s: {speeds};"
            f" {_load(row)}"
        )
        lines += [f"  left out: {name}: {why}" for name, why in row["left_out"].items()]
    for row in found["dcgm"]:
        lines += [
            f"dcgmi diag -r {row['level']} on {row['host']}: {row['verdict']}",
            *(f"  {text}" for text in row["failed"] + row["notes"]),
        ]
    return ["", *(visible(line, 400) for line in lines)] if lines else []


def _load(row: Mapping[str, Any]) -> str:
    known = [
        f"{row[name]:.0f} {unit}"
        for name, unit in (("sm_mhz", "MHz"), ("power_w", "W"), ("temperature_c", "°C"))
        if row[name]
    ]
    held = ", ".join(f"{name} {share:.0%}" for name, share in row["held_back"].items())
    return (
        ", ".join(known) + f", clocks held back by {held or 'nothing'}"
        if known
        else "clocks not read"
    )
