"""Typed version orders: driver, kernel, nccl, cuda, vbios, deb, rpm, generic.

One text order does not fit all: 6.8.0-1008-nvidia, 2.21.5+cuda12.4, 96.00.a5.00.1a and 1:2.3~rc1-4 each have an order of their own,
and some pairs have none. Nothing here raises on a version that cannot be compared: the answer says why there is no order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from unhang.judge.package_versions import compare_deb, compare_rpm

LONGEST_VERSION = 256


@dataclass(frozen=True)
class Comparison:
    """sign: -1, 0 or 1, None when the two have no order. equal: known even for some pairs without order. reason: why there is none."""

    sign: int | None
    equal: bool | None
    reason: str = ""


class NotAVersion(ValueError):
    """The text is no version of its type; the message is one line for a person."""


OPERATORS = {
    "==": "==", "=": "==", "eq": "==",
    "!=": "!=", "<>": "!=", "ne": "!=",
    "<": "<", "lt": "<", "<=": "<=", "le": "<=",
    ">": ">", "gt": ">", ">=": ">=", "ge": ">=",
}  # fmt: skip


def holds(comparison: Comparison, operator: str) -> bool | None:
    """Whether `left operator right` holds; None when that cannot be told."""
    operator = OPERATORS[operator]
    if operator in ("==", "!="):
        equal = comparison.equal
        return None if equal is None else equal == (operator == "==")
    sign = comparison.sign
    if sign is None:
        return None
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[operator]


def compare_versions(left: object, right: object, order: str) -> Comparison:
    """Compares two versions of one order. Never raises on their content; `order` is one of ORDERS."""
    try:
        return ORDERS[order](_text(left, order), _text(right, order))
    except NotAVersion as problem:
        return Comparison(None, None, str(problem))


def check_version(text: object, order: str) -> str | None:
    """Why `text` is no version of this order, or None when it is one."""
    return compare_versions(text, text, order).reason or None


def _text(value: object, order: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise NotAVersion(f"{value!r} is not a {order} version")
    text = str(value).strip()
    if not text or len(text) > LONGEST_VERSION or not text.isascii() or not text.isprintable():
        raise NotAVersion(f"{text[:60]!r} is not a {order} version")
    return text


def _sign(left, right) -> int:
    return (left > right) - (left < right)


def _numbers(text: str, order: str, pattern: re.Pattern[str], base: int = 10) -> tuple[int, ...]:
    found = pattern.fullmatch(text)
    if not found:
        raise NotAVersion(f"{text[:60]!r} is not a {order} version")
    return tuple(int(field, base) for field in found.group(1).split("."))


def _padded(left: tuple[int, ...], right: tuple[int, ...]) -> Comparison:
    """Numeric fields, the shorter filled with zeros: 12.4 equals 12.4.0."""
    length = max(len(left), len(right))
    sign = _sign(left + (0,) * (length - len(left)), right + (0,) * (length - len(right)))
    return Comparison(sign, sign == 0)


_DRIVER = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})")
_CUDA = re.compile(r"[vV]?([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})")
_VBIOS = re.compile(r"([0-9a-fA-F]{1,4}(?:\.[0-9a-fA-F]{1,4}){1,7})")
_NCCL = re.compile(r"v?([0-9]{1,9}(?:\.[0-9]{1,6}){0,3})(?:\.post([0-9]{1,4}))?(?:-[0-9]+)?(?:\+cuda[0-9.]+)?")
_FIELDS = re.compile(r"v?([0-9]{1,18}(?:\.[0-9]{1,18}){0,15})")


def _driver(left: str, right: str) -> Comparison:
    return _padded(_numbers(left, "driver", _DRIVER), _numbers(right, "driver", _DRIVER))


def _cuda_fields(text: str) -> tuple[int, ...]:
    """12.4, 12.4.131, or CUDA's own number 12040 (1000 * major + 10 * minor, cuda.h's CUDA_VERSION)."""
    fields = _numbers(text, "cuda", _CUDA)
    if len(fields) == 1 and fields[0] >= 1000:
        return fields[0] // 1000, fields[0] % 1000 // 10
    return fields


def _cuda(left: str, right: str) -> Comparison:
    return _padded(_cuda_fields(left), _cuda_fields(right))


def _vbios(left: str, right: str) -> Comparison:
    return _padded(_numbers(left, "vbios", _VBIOS, 16), _numbers(right, "vbios", _VBIOS, 16))


def _nccl_fields(text: str) -> tuple[int, ...]:
    """2.21.5, 2.21.5+cuda12.4, 2.21.5-1, or NCCL's own number: 22105, and 2804 before 2.9 (nccl.h's NCCL_VERSION)."""
    found = _NCCL.fullmatch(text)
    if not found:
        raise NotAVersion(f"{text[:60]!r} is not a nccl version")
    fields = tuple(int(field) for field in found.group(1).split("."))
    if len(fields) == 1 and fields[0] >= 1000:
        unit = 10000 if fields[0] >= 10000 else 1000
        fields = (fields[0] // unit, fields[0] % unit // 100, fields[0] % 100)
    return (*(fields + (0,) * 4)[:4], int(found.group(2) or 0))


def _nccl(left: str, right: str) -> Comparison:
    return _padded(_nccl_fields(left), _nccl_fields(right))


_KERNEL = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6}){1,3})(?:-rc([0-9]{1,4}))?(?:-([0-9]{1,9}(?:\.[0-9]{1,9})*))?(?:[-.+_~](.*))?")


@dataclass(frozen=True)
class _Kernel:
    base: tuple[int, ...]       # 6.8.0, four fields
    candidate: int              # 3 for -rc3, a large number for a release
    build: tuple[int, ...]      # 1008, () when the text has none
    flavour: str                # nvidia, generic, el9, "" when the text has none


def _kernel_parts(text: str) -> _Kernel:
    found = _KERNEL.fullmatch(text)
    if not found:
        raise NotAVersion(f"{text[:60]!r} is not a kernel version")
    base = tuple(int(field) for field in found.group(1).split("."))
    build = tuple(int(field) for field in (found.group(3) or "").split(".") if field)
    rest = found.group(4) or ""
    enterprise = re.match(r"(el[0-9]+)", rest)
    return _Kernel((base + (0,) * 4)[:4], int(found.group(2)) if found.group(2) else 1 << 20, build, enterprise.group(1) if enterprise else rest)


def _kernel(left: str, right: str) -> Comparison:
    """Upstream version first. Build numbers only have an order within one flavour: 1008-nvidia is not newer than 45-generic."""
    one, other = _kernel_parts(left), _kernel_parts(right)
    sign = _sign((one.base, one.candidate), (other.base, other.candidate))
    if sign:
        return Comparison(sign, False)
    if one.flavour and other.flavour and one.flavour != other.flavour and (one.build or other.build):
        return Comparison(None, False, f"{left} and {right} are of different kernel flavours, whose build numbers have no common order")
    width = max(len(one.build), len(other.build))
    sign = _sign(one.build + (0,) * (width - len(one.build)), other.build + (0,) * (width - len(other.build)))
    return Comparison(sign, sign == 0)


def _generic(left: str, right: str) -> Comparison:
    """PEP 440 where both follow it, else numeric fields."""
    try:
        sign = _sign(Version(left), Version(right))
        return Comparison(sign, sign == 0)
    except InvalidVersion:
        return _padded(_numbers(left, "generic", _FIELDS), _numbers(right, "generic", _FIELDS))


def _of_packages(order: str, compare: Callable[[str, str], int]) -> Callable[[str, str], Comparison]:
    def compared(left: str, right: str) -> Comparison:
        try:
            sign = compare(left, right)
        except ValueError as problem:
            raise NotAVersion(str(problem)) from None
        return Comparison(sign, sign == 0)

    return compared


ORDERS: dict[str, Callable[[str, str], Comparison]] = {
    "driver": _driver,
    "kernel": _kernel,
    "nccl": _nccl,
    "cuda": _cuda,
    "vbios": _vbios,
    "deb": _of_packages("deb", compare_deb),
    "rpm": _of_packages("rpm", compare_rpm),
    "generic": _generic,
}
