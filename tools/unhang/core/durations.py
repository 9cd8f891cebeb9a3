"""Times that a person types."""

from __future__ import annotations

import re

from unhang.core.errors import UserError


def parse_duration(text: str, option: str) -> float:
    """Seconds of 90, 90s, 30m, 1.5h. Raises UserError."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(s|m|h)?", text)
    seconds = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"] if found else 0.0
    if not 1 <= seconds <= 7 * 86400:
        raise UserError(
            f"{option}: expected a time such as 90s, 30m or 2h, up to a week, found {text!r}"
        )
    return seconds
