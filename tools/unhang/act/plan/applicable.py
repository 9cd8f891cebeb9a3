"""Why a plan's entry may not be applied to its node now: the node has booted, or its configuration
has changed. How old the plan is refuses nothing. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.act.plan.plan_document import HostPlan
from unhang.core.schemas.configuration import changed_facts, hash_of_sections

SHOWN_FACTS = 5
AGAIN = "audit it again, then unhang plan"


Sections = Mapping[str, Any]


def reasons_against(
    entry: HostPlan, now: Sections | None, then: Sections | None = None, own_boot: str | None = None
) -> list[str]:
    """One line for each reason why the entry must not be applied; [] if it may be.

    now: sections of the node at its latest reading, plain; None if it was not read. then: those in
    the plan's run, to name the facts; None if they no longer exist. own_boot: of a node that this
    rollout has changed, the boot that it knows of; None for any other.
    """
    if entry.config_hash is None:
        return [f"{entry.host}: it was not read when the plan was made; {AGAIN}"]
    if now is None:
        return [f"{entry.host}: it did not answer when it was read again"]
    found = _boot(entry, (now.get("node") or {}).get("boot_id"), own_boot)
    found += _changes(entry, now, then) if own_boot is None else []
    return [f"{entry.host}: {line}; {AGAIN}" for line in found]


def _boot(entry: HostPlan, boot: str | None, own_boot: str | None) -> list[str]:
    if boot is None or entry.boot_id is None:
        return [
            "the node's boot id was not read, then or now: whether it has booted since is not known"
        ]
    if boot in (entry.boot_id, own_boot):
        return []
    return [
        f"the node has booted since the plan was made: its node.boot_id is {boot}, not"
        f" {entry.boot_id}"
    ]


def _changes(entry: HostPlan, sections: Sections, then: Sections | None) -> list[str]:
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
