"""The version orders of NVIDIA's products and of Linux kernels: 535.154.05, 12040, 2.21.5+cuda12.4,
96.00.a5.00.1a, 6.8.0-1008-nvidia."""

from __future__ import annotations

import re
from typing import NamedTuple

from .comparison import Comparison, NotAVersion, sign_of
from .fields import fields_of, nccl_fields

DRIVER = r"([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})"
JETPACK = r"540\.[0-9]\.0|[0-9]{3}\.00"  # of releases 6 and 7
CUDA = r"[vV]?([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})"
VBIOS = r"([0-9a-fA-F]{1,4}(?:\.[0-9a-fA-F]{1,4}){1,7})"
KERNEL = r"([0-9]{1,6}(?:\.[0-9]{1,6}){1,3})(?:-rc([0-9]{1,4}))?(?:-([0-9]{1,9}(?:\.[0-9]{1,9})*))?(?:[-.+_~](.*))?"  # noqa: E501
RELEASED = 1 << 20  # sorts after every release candidate


def padded(left: tuple[int, ...], right: tuple[int, ...]) -> Comparison:
    """Numeric fields, the shorter list padded with zeros: 12.4 equals 12.4.0."""
    length = max(len(left), len(right))
    sign = sign_of(left + (0,) * (length - len(left)), right + (0,) * (length - len(right)))
    return Comparison(sign, sign == 0)


def compare_driver(left: str, right: str) -> Comparison:
    """Driver versions, such as 535.154.05. Those of JetPack, 540.4.0 and 580.00, have releases and
    a CUDA of their own."""
    if bool(re.fullmatch(JETPACK, left)) != bool(re.fullmatch(JETPACK, right)):
        reason = f"{left} and {right}: one is a driver of JetPack, which has an order of its own"
        return Comparison(sign=None, equal=False, reason=reason)
    return padded(fields_of(left, "driver", DRIVER), fields_of(right, "driver", DRIVER))


def compare_cuda(left: str, right: str) -> Comparison:
    """12.4, V12.4.131 or CUDA's own number 12040."""
    return padded(_cuda_fields(left), _cuda_fields(right))


def _cuda_fields(text: str) -> tuple[int, ...]:
    """CUDA's own number is 1000 * major + 10 * minor (cuda.h's CUDA_VERSION)."""
    fields = fields_of(text, "cuda", CUDA)
    if len(fields) == 1 and fields[0] >= 1000:
        return fields[0] // 1000, fields[0] % 1000 // 10
    return fields


def compare_vbios(left: str, right: str) -> Comparison:
    """Fields in hexadecimal: 96.00.a5.00.1a."""
    return padded(fields_of(left, "vbios", VBIOS, 16), fields_of(right, "vbios", VBIOS, 16))


def compare_nccl(left: str, right: str) -> Comparison:
    """2.21.5, 2.21.5+cuda12.4, 2.21.5-1 or NCCL's own number."""
    return padded(nccl_fields(left), nccl_fields(right))


class Kernel(NamedTuple):
    """A kernel's release in parts. base: 6.8.0, four fields; candidate: 3 for -rc3; build: 1008, ()
    without one; flavour: nvidia, generic, el9, ""."""

    base: tuple[int, ...]
    candidate: int
    build: tuple[int, ...]
    flavour: str


def kernel_parts(text: str) -> Kernel:
    """A release as `uname -r` prints it. Raises NotAVersion."""
    found = re.fullmatch(KERNEL, text)
    if not found:
        raise NotAVersion(f"{text[:60]!r} is not a kernel version")
    base = tuple(int(field) for field in found.group(1).split("."))
    rest = found.group(4) or ""
    enterprise = re.match(r"(el[0-9]+)", rest)
    return Kernel(
        base=(base + (0,) * 4)[:4],
        candidate=int(found.group(2)) if found.group(2) else RELEASED,
        build=tuple(int(field) for field in (found.group(3) or "").split(".") if field),
        flavour=enterprise.group(1) if enterprise else rest,
    )


def compare_kernel(left: str, right: str) -> Comparison:
    """Upstream version first. Build numbers only have an order within one flavour: 1008-nvidia is
    not newer than 45-generic."""
    one, other = kernel_parts(left), kernel_parts(right)
    sign = sign_of((one.base, one.candidate), (other.base, other.candidate))
    if sign:
        return Comparison(sign, False)
    if (
        one.flavour
        and other.flavour
        and one.flavour != other.flavour
        and (one.build or other.build)
    ):
        reason = (
            f"{left} and {right} are of different kernel flavours, whose build numbers have no"
            " common order"
        )
        return Comparison(sign=None, equal=False, reason=reason)
    return padded(one.build, other.build)
