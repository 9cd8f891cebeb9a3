"""The lines that a rollout prints while it runs. Values in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.base.nodeset import fold_hosts, shortened
from unhang.base.text import counted

LONGEST_LIST = 200


def wave_line(admitted: Mapping[str, Any]) -> str:
    """The line at the beginning of a wave. admitted: result of Conductor.begin_wave."""
    begin, stopped = admitted["begin"], admitted["stopped"]
    postponed = dict[str, list[str]]()
    for host, why in sorted(admitted["postponed"].items()):
        postponed.setdefault(why, []).append(host)
    parts = [f"{counted(len(begin), 'node')} {'to bring to an end' if stopped else 'to begin'}, {_folded(begin)}"] if begin else []
    parts += [f"put off: {_folded(hosts)}, {why}" for why, hosts in postponed.items()]
    parts += [f"nothing new is begun, {stopped}"] if stopped else []
    return f"{admitted['wave']}: {'; '.join(parts) or 'nothing is left to do'}"


def _folded(hosts: list[str]) -> str:
    return shortened(fold_hosts(hosts), LONGEST_LIST)
