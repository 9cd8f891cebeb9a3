"""A light typing.NamedTuple for the collector's modules: importing typing costs each start 5 ms of
CPU. mypy sees the real one."""

from __future__ import annotations

import collections

TYPE_CHECKING = False  # mypy takes this name for true; importing typing is not needed for it

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    OWN_NAMES = ("__module__", "__qualname__", "__annotations__")

    class _Fields(type):
        def __new__(cls, name, bases, namespace):
            if not bases:
                return super().__new__(cls, name, bases, namespace)
            fields = list(namespace["__annotations__"])
            defaults = [namespace[field] for field in fields if field in namespace]
            made = collections.namedtuple(
                name, fields, defaults=defaults, module=namespace["__module__"]
            )
            for key, value in namespace.items():
                if key not in fields and key not in OWN_NAMES:
                    setattr(made, key, value)
            made.__annotations__ = namespace["__annotations__"]
            return made

    class NamedTuple(metaclass=_Fields):
        """class Point(NamedTuple): x: int; y: int = 0, with methods where wanted."""
