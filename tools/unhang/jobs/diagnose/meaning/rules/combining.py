"""Causes that follow from several facts together: ranks that differ, work that was in progress, a
hang without a message.

Each public function facts -> evidence of these modules is a rule, with the same weights as
signatures. The order does not matter; rules are independent of each other. A rule stays if it
decides logs or keeps a healthy one silent. Its docstring names them below tests/fixtures; a log of
a batch by the first part of its folder's name. A test takes each rule away and looks at these logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.meaning.evidence import Evidence
from unhang.jobs.diagnose.meaning.rules import (
    collective_rules,
    device_rules,
    failures,
    guard_rules,
    memory_rules,
    network_rules,
    recording_rules,
    stack_rules,
    time_rules,
    work_rules,
)
from unhang.jobs.diagnose.meaning.signs import hang_signs


def facts_together(facts: Facts) -> Iterator[Evidence]:
    """What two facts show that neither shows alone, by the rows of joined_facts.

    Decides diagnose_batches/10/044, diagnose/kernel_too_old/interrupted, diagnose_batches/6/372,
    diagnose_documented/gpu_nccl_torch_2/mig-slices-same-parent, diagnose_batches/1/053,
    diagnose_batches/5/392, diagnose_batches/13/e30, diagnose_batches/14/f02,
    diagnose_user_jobs/master-address-is-two-addresses, diagnose/slow_rank_or_io/zero-first,
    diagnose_batches/1/135, diagnose_outputs/pcie_and_gpus/topo-p2p-ns, diagnose_batches/15/g19,
    diagnose/unsupported_p2p_geforce/direct-pointer.
    """
    signs = hang_signs(facts)
    for row in table("joined_facts").values():
        lines = [one for name in row["facts"] for one in [*facts.of(name), *facts.has(name)][:1]]
        if (
            len(lines) == len(row["facts"])
            and (signs or not row["hangs"])
            and not facts.has(*row["unless"])
        ):
            why = row["why"].format(*(one.fields for one in lines))
            yield Evidence(row["cause"], row["weight"], why, (*lines, *signs[:1]), row["id"])


_MODULES = (
    failures, collective_rules, recording_rules, stack_rules, work_rules, time_rules,
    device_rules, memory_rules, network_rules, guard_rules,
)  # fmt: skip
_IS_RULE = {"facts": "Facts", "return": "Iterator[Evidence]"}
RULES: tuple[Callable[[Facts], Iterator[Evidence]], ...] = (
    facts_together,
    *(
        rule
        for module in _MODULES
        for name, rule in vars(module).items()
        if getattr(rule, "__annotations__", None) == _IS_RULE
        and rule.__module__ == module.__name__
        and not name.startswith("_")
    ),
)


@lru_cache(maxsize=1)
def combined_evidence(facts: Facts) -> tuple[Evidence, ...]:
    """The evidence of all rules; the ranking and the outcome both ask for it."""
    return tuple(one for rule in RULES for one in rule(facts))
