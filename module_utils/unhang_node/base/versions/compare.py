"""Compares versions in the order of their kind: driver, kernel, nccl, cuda, vbios, deb, rpm,
generic.

One order does not fit all: 6.8.0-1008-nvidia, 2.21.5+cuda12.4, 96.00.a5.00.1a and 1:2.3~rc1-4 each
have an order of their own, and some pairs have none. Nothing here raises on a version that cannot
be compared: the result has the reason.
"""

from __future__ import annotations

from typing import Callable

from .comparison import Comparison, NotAVersion
from .packages import compare_deb, compare_rpm
from .products import compare_cuda, compare_driver, compare_kernel, compare_nccl, compare_vbios
from .python_order import compare_generic

LONGEST_VERSION = 256
OPERATORS = {
    "==": "==", "=": "==", "eq": "==",
    "!=": "!=", "<>": "!=", "ne": "!=",
    "<": "<", "lt": "<", "<=": "<=", "le": "<=",
    ">": ">", "gt": ">", ">=": ">=", "ge": ">=",
}  # fmt: skip


def holds(comparison: Comparison, operator: str) -> bool | None:
    """Whether `left operator right` holds; None when that is not known."""
    operator = OPERATORS[operator]
    if operator in ("==", "!="):
        equal = comparison.equal
        return None if equal is None else equal == (operator == "==")
    sign = comparison.sign
    if sign is None:
        return None
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[operator]


def compare_versions(left: object, right: object, order: str) -> Comparison:
    """Compares two versions of one order. Never raises on their content; `order` is one of
    ORDERS."""
    try:
        return ORDERS[order](_text(left, order), _text(right, order))
    except NotAVersion as problem:
        return Comparison(sign=None, equal=None, reason=str(problem))


def check_version(text: object, order: str) -> str | None:
    """The reason why `text` is no version of this order; None if it is one."""
    return compare_versions(text, text, order).reason or None


def _text(value: object, order: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise NotAVersion(f"{value!r} is not a {order} version")
    text = str(value).strip()
    if not text or len(text) > LONGEST_VERSION or not text.isascii() or not text.isprintable():
        raise NotAVersion(f"{text[:60]!r} is not a {order} version")
    return text


def _of_packages(compare: Callable[[str, str], int]) -> Callable[[str, str], Comparison]:
    def compared(left: str, right: str) -> Comparison:
        try:
            sign = compare(left, right)
        except ValueError as problem:
            raise NotAVersion(str(problem)) from None
        return Comparison(sign, sign == 0)

    return compared


ORDERS: dict[str, Callable[[str, str], Comparison]] = {
    "driver": compare_driver,
    "kernel": compare_kernel,
    "nccl": compare_nccl,
    "cuda": compare_cuda,
    "vbios": compare_vbios,
    "deb": _of_packages(compare_deb),
    "rpm": _of_packages(compare_rpm),
    "generic": compare_generic,
}
