"""When nodes were read, by their clocks and the controller's. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from unhang.core.run.documents import NodeDocument

OF_ONE_AGE = timedelta(days=1)


def clock_ahead_s(document: NodeDocument, run: Mapping[str, Any]) -> float | None:
    """How long before or after the run of the controller's clock a node's clock was when the run
    read it, negative for before; None where that is not known."""
    began, ended, then = map(
        _time, (run.get("started"), run.get("finished"), document.collected_at)
    )
    if not (document.is_live and began and ended and then):
        return None
    return (then - min(max(then, began), ended)).total_seconds()


def collected_long_before(collected: Mapping[str, str]) -> list[str]:
    """The hosts that were read a day and more before the last one. collected: host -> when."""
    times = {host: time for host, text in collected.items() if (time := _time(text))}
    return [host for host, time in times.items() if max(times.values()) - time > OF_ONE_AGE]


def _time(text: str | None) -> datetime | None:
    """None for what is no time with its zone."""
    try:
        found = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else None
