"""Baselines from results of earlier smoke tests of this fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded
from unhang.core.text import visible, why_not_plain

SCHEMA = "unhang/smoke/1"
BELOW_HISTORY = 0.9  # share of the lowest result that the fleet itself has reached
# expectations hold from a quarter of the table's size on; small messages are latency
LARGE_BYTES = 256 << 20
LARGEST = 64 * 1024 * 1024  # a result over a thousand nodes is a few MB


def read_baselines(paths: Iterable[str], option: str = "--baseline") -> Iterator[dict[str, Any]]:
    """Results in files, or in the JSON files of folders. Raises UserError for a file that is no
    result."""
    for one in paths:
        path = Path(one)
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                document = parse_strictly(read_bounded(file, LARGEST))
            except (OSError, NotStrict) as problem:
                raise UserError(
                    f"{option}: {file} is not a result of unhang smoke: {problem}"
                ) from None
            if not isinstance(document, dict) or document.get("schema") != SCHEMA:
                raise UserError(f"{option}: {file} is not {SCHEMA}")
            if fault := next(check_schema(document, read_schema("smoke-1")), None):
                place = ".".join(map(str, fault.path))[:200] or "it"
                raise UserError(
                    visible(
                        f"{option}: {file} is not {SCHEMA}: {place} has a fault: {fault.message}",
                        1000,
                    )
                )
            yield document


def history_rows(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What earlier runs that passed have reached, for `bandwidth.expectation`."""
    rows = []
    for result in results:
        if result["verdict"] == "pass" and result.get("group"):
            rows += [
                {**result["group"], **row}
                for row in result["collectives"]
                if row.get("measures") == "bandwidth"
            ]
    return rows


def bandwidth_rows(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the policy's key `bandwidth`: the lowest rate of large messages in smoke tests
    (unhang/smoke/1) that passed; [] if none was measured.

    Raises UserError for texts that Ansible would take for more than data.
    """
    reached: dict[tuple[Any, ...], float] = {}
    for row in history_rows(results):
        if row["size_bytes"] >= LARGE_BYTES and row["busbw_gb_s"] > 0:
            # only this operation uses the sums of NVLink SHARP
            sums = row["nvls"] and row["op"] == "all_reduce"
            key = (row["gpu"], row["gpus"], sums, row["transport"], row["op"], row["size_bytes"])
            reached[key] = min(row["busbw_gb_s"], reached.get(key, row["busbw_gb_s"]))
    if problem := why_not_plain([*reached]):
        raise UserError(f"--smoke has a name of a GPU or operation that {problem}")
    names = ("gpu", "gpus", "nvls", "transport", "operation", "size_bytes")
    return [
        {
            **dict(zip(names, key, strict=True)),
            "low_gb_s": round(value * BELOW_HISTORY, 1),
            "reached_gb_s": value,
        }
        for key, value in reached.items()
    ]
