"""A failure of a rule, as triage and plan read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from unhang.core.catalogue.owners import DEFAULT_OWNER


class Found(NamedTuple):
    """One failure. number: its index in `findings`; hosts: of the finding; apart: for group
    scope, the hosts of each value."""

    number: int
    rule: str
    title: str
    severity: str
    scope: str
    hosts: tuple[str, ...]
    where: Mapping[str, Any]
    remedy: Mapping[str, Any]
    apart: tuple[frozenset[str], ...] = ()
    of_reading: bool = False  # the finding reports that the node was not read
    owner: str = DEFAULT_OWNER
    layer: int = 99  # 0 for what is nearest the hardware
    hangs: bool = False  # jobs can hang with it, not only be slow
    # paths of the facts that are compared with a norm, or with other nodes
    reads: frozenset[tuple[str, ...]] = frozenset()
    usual: bool = False  # half of all healthy machines have it
    expected: str = ""  # as the finding says it
