"""The numbers of a version, and those of NCCL's releases."""

from __future__ import annotations

import re

from .comparison import NotAVersion

NCCL = r"v?([0-9]{1,9}(?:\.[0-9]{1,6}){0,3})(?:\.post([0-9]{1,4}))?(?:-[0-9]+)?(?:\+cuda[0-9.]+)?"


def fields_of(text: str, order: str, pattern: str, base: int = 10) -> tuple[int, ...]:
    """The numbers of a version that `pattern` matches. Raises NotAVersion."""
    found = re.fullmatch(pattern, text)
    if not found:
        raise NotAVersion(f"{text[:60]!r} is not a {order} version")
    return tuple(int(field, base) for field in found.group(1).split("."))


def nccl_fields(text: str) -> tuple[int, ...]:
    """The numbers of a release. NCCL's own number is 22105 for 2.21.5, and was 2804 for 2.8.4
    before 2.9 (nccl.h's NCCL_VERSION). Raises NotAVersion."""
    first, *others = fields_of(text, "nccl", NCCL)
    if first >= 1000 and not others:
        unit = 10000 if first >= 10000 else 1000
        first, *others = first // unit, first % unit // 100, first % 100
    post = [*re.findall(r"\.post([0-9]+)", text), 0][0]
    return (*[first, *others, 0, 0, 0][:4], int(post))
