"""Reads pickles of plain data. Unpickling can run code: only opcodes that make containers, numbers
and strings are admitted.

Two passes. First every opcode is looked at without running anything; then the standard unpickler
runs, with no way to name a class or function. The first pass takes about a second for a megabyte:
who reads thousands of large dumps runs the second alone (`unpickle_plain`), in a child with limits.
"""

from __future__ import annotations

import pickletools
from typing import Any

from unhang_node.base.parse.plain_pickle import NotPlain, unpickle_plain

MOST_BYTES = 4 << 20
MOST_ITEMS = 500_000
# What dicts, lists, tuples, sets, numbers, strings and None are made of. No GLOBAL, REDUCE, BUILD,
# INST, OBJ, EXT, PERSID.
PLAIN = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "MEMOIZE", "PUT", "BINPUT",
    "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "NONE",
    "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT",
    "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_LIST",
    "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET",
    "ADDITEMS", "FROZENSET",
))  # fmt: skip
MEMO = ("PUT", "BINPUT", "LONG_BINPUT")


def load_plain(dump: bytes) -> Any:
    """The dump's containers, numbers and strings. Raises NotPlain; nothing that the dump says is
    ever called."""
    if len(dump) > MOST_BYTES:
        raise NotPlain(f"has {len(dump)} bytes, more than {MOST_BYTES}")
    try:
        for opcode, argument, _ in pickletools.genops(dump):
            if opcode.name not in PLAIN:
                raise NotPlain(
                    f"holds {opcode.name}"
                    + (f" {argument!r}"[:120] if argument is not None else "")
                )
            # the unpickler makes its memo as long as that, 16 bytes a place
            if opcode.name in MEMO and int(argument or 0) > len(dump):
                raise NotPlain("remembers more than it can hold")
            if opcode.name == "LONG4" or (isinstance(argument, int) and abs(argument) >= 1 << 128):
                raise NotPlain("holds a number without measure")
        value = unpickle_plain(dump)
    except NotPlain:
        raise
    except Exception as problem:
        # The unpickler raises whatever its input makes it: all of it means that this is no dump.
        raise NotPlain(f"is no pickle of plain data: {type(problem).__name__}") from None
    _measure(value)
    return value


def _measure(value: Any) -> None:
    """Refuses what is endless to walk: shared parts are counted each time that they are met."""
    pending, seen = [value], 0
    while pending:
        one = pending.pop()
        seen += 1
        if seen > MOST_ITEMS:
            raise NotPlain(f"has more than {MOST_ITEMS} items")
        if isinstance(one, dict):
            pending += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            pending += one
