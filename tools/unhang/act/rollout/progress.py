"""The display of a running rollout, from its journal: a line for each step that ended, and a screen
with the state of all nodes. No clock, no I/O."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from unhang.act.plan.plan_document import Plan
from unhang.act.rollout.evidence import NO_SCHEDULER
from unhang.act.rollout.node_state import NodeState, is_resting
from unhang.act.rollout.reasons import joined
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.soak import describe_soak
from unhang.act.rollout.status import as_typed_here, policy_edited
from unhang.act.rollout.status_table import ORDER
from unhang.act.rollout.steps import (
    BEGUN,
    DONE,
    FAILED,
    FAILURE_LIMIT,
    FLOOR,
    REBUILT,
    ROLLOUT,
    SOAK,
    UNFINISHED,
    Entry,
)
from unhang.act.rollout.waiting import until_words
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.text import counted, visible

LONGEST_HOSTS, LONGEST_WHY = 60, 200


@dataclass
class Progress:
    """The journal's entries so far.

    began: (host, step) -> (time of its beginning, deadline); wave: its index in the plan; edited:
    what was printed of an edited policy.
    """

    plan: Plan
    standing: RolloutState = field(default_factory=RolloutState)
    began: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    wave: int | None = None
    edited: str = ""

    def feed(self, entries: Iterable[Entry]) -> Iterator[str]:
        for entry in entries:
            self.standing.take([entry])
            line = self._of_node(entry) if entry.host else self._of_rollout(entry)
            if line:
                yield line

    def screen(self, at: str) -> list[str]:
        """The state of all nodes. at: the present time, in the journal's format."""
        states: dict[str, list[str]] = {}
        steps: dict[str, list[NodeState]] = {}
        for host in self.plan.wave_of:
            node = self.standing.node(host)
            if node.state == UNFINISHED and node.begun:
                steps.setdefault(node.begun, []).append(node)
            else:
                states.setdefault(node.state, []).append(host)
        lines = [
            self._waves(),
            *([describe_soak(self.standing.soak)] if self.standing.soak is not None else []),
        ]
        lines += [
            f"  {step:<15}{_hosts([node.host for node in nodes])}  {self._since(step, nodes, at)}"
            for step, nodes in steps.items()
        ]
        return lines + [
            f"  {state:<15}{_hosts(states[state])}  {counted(len(states[state]), 'node')}"
            for state in ORDER
            if state in states
        ]

    def _of_node(self, entry: Entry) -> str:
        key = (entry.host, entry.step)
        if entry.step == SOAK:
            return (
                f"{entry.host}: failed after its release:"
                f" {visible(str(entry.evidence.get('why')), LONGEST_WHY)}"
                if entry.status == FAILED
                else ""
            )
        if entry.status == BEGUN:
            until = str(entry.evidence.get("until") or "")
            self.began[key] = (entry.at, until)
            return f"{entry.host}: {entry.step} {until_words(entry.step, until)}" if until else ""
        if (
            entry.step == "drain"
            and entry.status == DONE
            and entry.evidence.get("scheduler") == NO_SCHEDULER
        ):
            self.began.pop(key, None)
            return f"{entry.host}: no scheduler has it, so nothing was drained"
        took = f", {elapsed(self.began.pop(key)[0], entry.at)}" if key in self.began else ""
        why = (
            f": {visible(as_typed_here(joined(str(entry.evidence['why']))), LONGEST_WHY)}"
            if entry.evidence.get("why")
            else ""
        )
        node = self.standing.node(entry.host)
        return f"{entry.host}: {entry.step} {entry.status}{took}{why}" + (
            f"; {node.state}" if is_resting(node) else ""
        )

    def _of_rollout(self, entry: Entry) -> str:
        if entry.step == SOAK:
            why = visible(str(entry.evidence.get("why")), LONGEST_WHY)
            return "" if entry.status == BEGUN else f"asked again: {why}"
        if entry.step == REBUILT:
            return visible(str(entry.evidence.get("why")), LONGEST_WHY)
        if entry.step == FLOOR:  # each node that has to wait is listed with the reason
            return (
                "" if self.standing.floor else visible(str(entry.evidence.get("why")), LONGEST_WHY)
            )
        if entry.step == FAILURE_LIMIT:
            name = str(entry.evidence.get("wave") or "")
            self.wave = next(
                (place for place, wave in enumerate(self.plan.waves) if wave.name == name),
                self.wave,
            )
            return (
                self._waves()
                if entry.status == DONE
                else (
                    f"{name}: nothing new is begun:"
                    f" {visible(str(entry.evidence.get('why')), LONGEST_WHY)}"
                )
            )
        if entry.step == ROLLOUT and entry.status == BEGUN:
            nodes = len(self.plan.wave_of)
            edited, self.edited = self.edited, policy_edited(entry)
            news = f"; {self.edited}" if self.edited != edited and self.edited else ""
            return (
                f"{counted(nodes, 'node')} in {counted(len(self.plan.waves), 'wave')}:"
                f" {'begins' if entry.token == 1 else 'goes on'}{news}"
            )
        return ""

    def _waves(self) -> str:
        """The current wave, and the numbers of finished and future waves."""
        if self.wave is None:
            return f"{counted(len(self.plan.waves), 'wave')} to come"
        wave, remaining = self.plan.waves[self.wave], len(self.plan.waves) - self.wave - 1
        return (
            f"{wave.name}: {counted(len(wave.hosts), 'node')}; {counted(self.wave, 'wave')} done,"
            f" {remaining} to come"
        )

    def _since(self, step: str, nodes: Iterable[NodeState], at: str) -> str:
        times = [self.began[node.host, step] for node in nodes if (node.host, step) in self.began]
        if not times:
            return ""
        until = max(until for _, until in times)
        lasts = f"for {elapsed(min(since for since, _ in times), at)}"
        return f"{lasts}, {until_words(step, until)}" if until else lasts


def elapsed(since: str, at: str) -> str:
    """Between two times of a journal: 12 s, 4 min 10 s, 2 h 5 min. 0 s if the clock was set
    back."""
    seconds = max(
        0,
        round(
            (
                datetime.datetime.fromisoformat(at) - datetime.datetime.fromisoformat(since)
            ).total_seconds()
        ),
    )
    if seconds < 60:
        return f"{seconds} s"
    return (
        f"{seconds // 60} min {seconds % 60} s"
        if seconds < 3600
        else f"{seconds // 3600} h {seconds % 3600 // 60} min"
    )


def _hosts(hosts: Iterable[str]) -> str:
    return shortened(fold_hosts(hosts), LONGEST_HOSTS)
