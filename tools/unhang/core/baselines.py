"""The policy's bandwidth, from results of smoke tests of this fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unhang.core.ansible.plain_data import why_not_plain
from unhang.core.errors import UserError
from unhang.core.smoke_result import LARGE_BYTES, SCHEMA, SmokeResult, smoke_result
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded
from unhang.core.text import visible

BELOW_HISTORY = 0.9  # share of the lowest result that the fleet itself has reached
LARGEST = 64 * 1024 * 1024  # a result over a thousand nodes is a few MB


def read_baselines(paths: Iterable[str]) -> Iterator[SmokeResult]:
    """Results in files, or in the JSON files of folders. Raises UserError for a file that is no
    result."""
    for one in paths:
        path = Path(one)
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                document = parse_strictly(read_bounded(file, LARGEST))
            except (OSError, NotStrict) as problem:
                raise UserError(
                    f"--smoke: {file} is not a result of unhang smoke: {problem}"
                ) from None
            try:
                yield smoke_result(document)
            except ValueError as problem:
                raise UserError(
                    visible(f"--smoke: {file} is not {SCHEMA}: {problem}", 1000)
                ) from None


def bandwidth_rows(results: Iterable[SmokeResult]) -> list[dict[str, Any]]:
    """Rows of the policy's key `bandwidth`: the lowest rate of large messages in smoke tests
    (unhang/smoke/1) that passed; [] if none was measured.

    Raises UserError for texts that Ansible would take for more than data.
    """
    reached: dict[tuple[Any, ...], float] = {}
    measured = (
        (result.group, row)
        for result in results
        if result.verdict == "pass" and result.group
        for row in result.collectives
        if row.measures == "bandwidth"
    )
    for group, row in measured:
        if row.size_bytes >= LARGE_BYTES and row.busbw_gb_s > 0:
            # only this operation uses the sums of NVLink SHARP
            sums = group.nvls and row.op == "all_reduce"
            key = (group.gpu, group.gpus, sums, group.transport, row.op, row.size_bytes)
            reached[key] = min(row.busbw_gb_s, reached.get(key, row.busbw_gb_s))
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
