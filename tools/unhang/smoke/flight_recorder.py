"""Reads torch's flight-recorder dumps. A dump is a pickle, and a pickle from a node is a program: only opcodes that make plain data are admitted.

Two passes. First every opcode is looked at without running anything; then the standard unpickler runs, with no way to name a class or function.
"""

from __future__ import annotations

import base64
import binascii
import io
import pickle
import pickletools
from typing import Any

MOST_BYTES = 4 << 20
MOST_ITEMS = 500_000
# What dicts, lists, tuples, sets, numbers, strings and None are made of. No GLOBAL, REDUCE, BUILD, INST, OBJ, EXT, PERSID.
PLAIN = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "NONE",
    "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS", "FROZENSET",
))  # fmt: skip


class NotPlain(ValueError):
    """The dump holds more than plain data, or is none; the text says what."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise NotPlain(f"names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise NotPlain("refers to something outside of itself")


def load_plain(dump: bytes) -> Any:
    """The dump's containers, numbers and strings. Raises NotPlain; nothing that the dump says is ever called."""
    if len(dump) > MOST_BYTES:
        raise NotPlain(f"has {len(dump)} bytes, more than {MOST_BYTES}")
    try:
        for opcode, argument, _ in pickletools.genops(dump):
            if opcode.name not in PLAIN:
                raise NotPlain(f"holds {opcode.name}" + (f" {argument!r}"[:120] if argument is not None else ""))
            if opcode.name == "LONG4" or (isinstance(argument, int) and abs(argument) >= 1 << 128):
                raise NotPlain("holds a number without measure")
        value = _Plain(io.BytesIO(dump)).load()
    except NotPlain:
        raise
    except Exception as problem:
        # The unpickler raises whatever its input makes it: all of it means that this is no dump.
        raise NotPlain(f"is no pickle of plain data: {type(problem).__name__}") from None
    _measure(value)
    return value


def _measure(value: Any) -> None:
    """Refuses what is endless to walk: shared parts are counted each time that they are met."""
    left, seen = [value], 0
    while left:
        one = left.pop()
        seen += 1
        if seen > MOST_ITEMS:
            raise NotPlain(f"has more than {MOST_ITEMS} items")
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            left += one


def summarise(encoded: Any) -> dict[str, Any]:
    """{last_enqueued, last_completed, last: {operation, state, where}} of a dump as a node sent it (base64), or {refused: why}. {} for None."""
    if not isinstance(encoded, str):
        return {}
    try:
        dump = load_plain(base64.b64decode(encoded, validate=True))
    except (NotPlain, binascii.Error) as problem:
        return {"refused": f"the flight recording was not read: it {problem}"}
    if not isinstance(dump, dict):
        return {"refused": "the flight recording was not read: it is no map"}
    found: dict[str, Any] = {}
    status = dump.get("pg_status")
    main = status.get("0") if isinstance(status, dict) else None
    if isinstance(main, dict):
        found = {"last_enqueued": _plain(main.get("last_enqueued_collective")), "last_completed": _plain(main.get("last_completed_collective"))}
    entries = dump.get("entries")
    if isinstance(entries, list) and entries and isinstance(entries[-1], dict):
        last = entries[-1]
        found["last"] = {"operation": _plain(last.get("profiling_name")), "state": _plain(last.get("state")), "where": _where(last.get("frames"))}
    return found


def _plain(value: Any) -> str | int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None if value is None else str(value)[:200]


def _where(frames: Any) -> str | None:
    for frame in frames if isinstance(frames, list) else []:
        if isinstance(frame, dict) and "/torch/" not in str(frame.get("filename")):
            return f"{frame.get('name')} at {frame.get('filename')}:{frame.get('line')}"[:300]
    return None
