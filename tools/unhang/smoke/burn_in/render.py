"""The outcome of a burn-in (unhang/burn-in/1) as a table and as JUnit. Values in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.core.junit import Case, Outcome, render_suite
from unhang.core.text import ascii_only, visible

GIB = 1 << 30
BYTES = ("memory", "collective")


def render_burn_in(document: Mapping[str, Any], plain: bool = False) -> str:
    """GPUs with their work, then the reasons for a fail; the verdict last, where the terminal's cursor is."""
    lines = []
    for row in document["gpus"]:
        lines.append(f"GPU {row['gpu']}  {visible(row['model'] or '?')}  {visible(row['uuid'] or '')}{_load(row)}")
        for name, done in row["done"].items():
            unit = "GB/s" if name in BYTES else "TFLOP/s"
            rate = done["per_s"] / (1e9 if name in BYTES else 1e12)
            lines.append(f"  {visible(name, 16):<16}{done['results']:>12} results{done['wrong']:>8} wrong{rate:>12.3g} {unit}")
    lines += [""] if lines else []
    lines += [f"FAIL  {_whose(one)}{one['kind']}: {visible(one['why'], 600)}" for one in document["failures"]]
    lines += [f"NOT PROVED  {visible(gap, 600)}" for gap in document["gaps"]]
    lines += [f"note  {visible(note, 600)}" for note in document["notes"]]
    lines += [f"verdict: {document['verdict']}"]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return ascii_only(text) if plain else text


def _load(row: Mapping[str, Any]) -> str:
    power = f"  {row['power_w']:.0f} W" if row["power_w"] else ""
    return power + (f"  {row['memory_bytes'] / GIB:.3g} GiB of patterns" if row["memory_bytes"] else "")


def _whose(one: Mapping[str, Any]) -> str:
    return "" if one["gpu"] is None else f"GPU {one['gpu']}, "


def render_burn_in_junit(document: Mapping[str, Any]) -> str:
    """One test case per GPU, or one for the node; what is not proved is an error, since a skipped test case would read as good."""
    return render_suite("unhang burn-in", [_case(document, row["gpu"]) for row in document["gpus"] or [{"gpu": None}]])


def _case(document: Mapping[str, Any], gpu: int | None) -> Case:
    name = document["host"] if gpu is None else f"{document['host']} GPU {gpu}"
    failed = [one["why"] for one in document["failures"] if one["gpu"] in (None, gpu)]
    if failed or not document["gaps"]:
        return Case("unhang.burn-in", name, Outcome("failure", failed[0], failed) if failed else None)
    return Case("unhang.burn-in", name, Outcome("error", document["gaps"][0], document["gaps"]))
