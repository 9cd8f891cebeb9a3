"""How to raise the time limit that really applies, for the frameworks that the log names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from unhang.core import catalogue

_NAMES = {"llamafactory": "llama-factory"}


@cache
def _rows() -> dict[str, str]:
    return {row["framework"]: row["how"] for row in catalogue.table("timeout_settings").values()}


def how_to_raise(frameworks: Sequence[str]) -> dict[str, str]:
    """framework -> the call or option, for the named frameworks and always for torch; for all frameworks if none is named."""
    seen = {_NAMES.get(name.lower(), name.lower()) for name in frameworks}
    rows = _rows()
    return {name: how for name, how in rows.items() if name == "torch" or not seen or name in seen}
