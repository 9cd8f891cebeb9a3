"""Unpickles plain data: no class or function can be named, so no code of a dump runs."""

from __future__ import annotations

import io
import pickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NotPlain(ValueError):
    """The dump holds more than plain data, or is none; the text says what."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise NotPlain(f"names {module}.{name}, which is no plain data"[:200])

    def persistent_load(self, pid: Any) -> Any:
        raise NotPlain("refers to something outside of itself")


def unpickle_plain(dump: bytes) -> Any:
    """What the dump holds. Memory and time are not bounded here. Raises what the unpickler raises,
    NotPlain."""
    return _Plain(io.BytesIO(dump), encoding="utf-8", errors="replace").load()
