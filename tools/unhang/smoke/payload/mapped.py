"""Which libraries a process has mapped, and its settings."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any

from .roots import rooted

SHOWN_VARIABLES = (
    "NCCL_",
    "TORCH_NCCL_",
    "GLOO_",
    "CUDA_VISIBLE_DEVICES",
    "LOCAL_RANK",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "UCX_",
    "FI_",
)


def mapped_libraries(prefix: str, maps: str = "/proc/self/maps") -> list[str]:
    """Paths of mapped files whose name begins with `prefix`, in the order of the map."""
    found = []
    with contextlib.suppress(OSError), open(maps, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            path = line.rstrip("\n").split(None, 5)[-1]
            if (
                path.startswith("/")
                and os.path.basename(path).startswith(prefix)
                and path not in found
            ):
                found.append(path)
    return found


def build_id(path: str) -> str | None:
    """The GNU build id of a 64-bit little-endian ELF file in hex, or None."""
    try:
        with open(path, "rb") as library:
            head = library.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                return None
            table, size, count = (
                struct.unpack_from("<Q", head, 32)[0],
                *struct.unpack_from("<HH", head, 54),
            )
            library.seek(table)
            rows = library.read(size * min(count, 128))
            for at in range(0, len(rows) - 55, size):
                kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", rows, at)
                if kind == 4 and length <= 65536:  # PT_NOTE
                    library.seek(offset)
                    found = _gnu_note(library.read(length))
                    if found:
                        return found
    except (OSError, struct.error):
        pass
    return None


def _gnu_note(notes: bytes) -> str | None:
    at = 0
    while at + 12 <= len(notes):
        name, length, kind = struct.unpack_from("<III", notes, at)
        content = at + 12 + (name + 3 & ~3)
        if kind == 3 and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[content : content + length].hex()
        at = content + (length + 3 & ~3)
    return None


def nccl_in_process() -> list[dict[str, Any]]:
    """[{path, version, build_id}] of every libnccl that is really mapped; the version comes from
    the library itself."""
    answers = []
    for path in mapped_libraries("libnccl.so"):
        number = ctypes.c_int(0)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
        answers.append(
            {"path": path, "version": nccl_version(number.value), "build_id": build_id(path)}
        )
    return answers


def nccl_version(number: int) -> str | None:
    """22809 -> 2.28.9; 2708 -> 2.7.8 (the older numbering); None for 0."""
    if not number:
        return None
    major = 10000 if number >= 10000 else 1000
    return "%d.%d.%d" % (number // major, number % major // 100, number % 100)


def shown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that control how ranks communicate and which devices they see."""
    return {
        name: environment[name] for name in sorted(environment) if name.startswith(SHOWN_VARIABLES)
    }


def nccl_conf_lines() -> list[list[str]]:
    """[path, line] of NCCL's own configuration files, where they are readable."""
    rows = []
    for path in (
        "/etc/nccl.conf",
        os.path.expanduser("~/.nccl.conf"),
        os.environ.get("NCCL_CONF_FILE") or "",
    ):
        with contextlib.suppress(OSError, ValueError), open(
            path, encoding="utf-8", errors="replace"
        ) as lines:
            rows += [
                [path, line.strip()[:200]]
                for line in list(lines)[:100]
                if line.strip() and not line.lstrip().startswith("#")
            ]
    return rows


def boot_id() -> str:
    """An id of the machine that does not depend on its name; two containers of one machine have the
    same."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
            return source.read().strip()
    except OSError:
        return socket.gethostname()


def read_driver() -> str | None:
    """The loaded NVIDIA driver's version, or None."""
    with contextlib.suppress(OSError), open(
        rooted("/sys/module/nvidia/version"), encoding="ascii"
    ) as source:
        return source.read().strip()
    return None
