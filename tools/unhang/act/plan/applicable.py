"""Why a plan's entry may not be applied to its node now: the node has booted, or its configuration
has changed. How old the plan is refuses nothing. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from unhang.act.plan.plan_document import HostPlan
from unhang.core.schemas.configuration import changed_facts, hash_of_sections

SHOWN_FACTS = 5
AGAIN = "audit it again, then unhang plan"


@dataclass(frozen=True)
class NodeNow:
    """The node at its latest reading. sections: of its facts, plain; None if it was not read."""

    boot_id: str | None
    sections: Mapping[str, Any] | None


@dataclass(frozen=True)
class OwnWork:
    """This rollout's own changes of the node, from the journal. boots: ids of the boots that it
    caused; changed: a step that changes the node has begun."""

    boots: Collection[str] = ()
    changed: bool = False


def reasons_against(
    entry: HostPlan, now: NodeNow,
    then: Mapping[str, Any] | None = None, own: OwnWork | None = None,
) -> list[str]:  # fmt: skip
    """One line for each reason why the entry must not be applied; [] if it may be.

    then: sections of the node in the plan's run, plain, to name the facts; None if they no longer
    exist. own: this rollout's changes of the node.
    """
    own = own or OwnWork()
    if entry.config_hash is None:
        return [f"{entry.host}: it was not read when the plan was made; {AGAIN}"]
    if now.sections is None:
        return [f"{entry.host}: it did not answer when it was read again"]
    found = _boot(entry, now, own)
    found += [] if own.changed else _changes(entry, now.sections, then)
    return [f"{entry.host}: {line}; {AGAIN}" for line in found]


def _boot(entry: HostPlan, now: NodeNow, own: OwnWork) -> list[str]:
    if now.boot_id is None or entry.boot_id is None:
        return [
            "the node's boot id was not read, then or now: whether it has booted since is not known"
        ]
    if now.boot_id == entry.boot_id or now.boot_id in own.boots:
        return []
    return [
        f"the node has booted since the plan was made: its node.boot_id is {now.boot_id}, not"
        f" {entry.boot_id}"
    ]


def _changes(
    entry: HostPlan, sections: Mapping[str, Any], then: Mapping[str, Any] | None
) -> list[str]:
    if hash_of_sections(sections) == entry.config_hash:
        return []
    if then is None or hash_of_sections(then) != entry.config_hash:
        return [
            "the node's configuration is not that of the plan; which fact differs is not known, for"
            " the facts of the plan's run are gone"
        ]
    facts = changed_facts(then, sections)
    if not facts:
        return []
    more = f" and {len(facts) - SHOWN_FACTS} more" if len(facts) > SHOWN_FACTS else ""
    return [
        f"the node's configuration is not that of the plan: {'; '.join(facts[:SHOWN_FACTS])}{more}"
    ]
