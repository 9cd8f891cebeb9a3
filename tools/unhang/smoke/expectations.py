"""The bandwidth of healthy groups and hardware: tables of the catalogue, and the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.smoke.bandwidth import POLICY
from unhang.smoke.counter_rates import normal_rates

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Expectations:
    """bandwidth: rows of the policy and of the table `bandwidth`; counter_rates: normal rises in a
    minute."""

    bandwidth: Rows = ()
    counter_rates: Mapping[str, float] = field(default_factory=dict)


NOTHING_KNOWN = Expectations()


def read_expectations(policy: Rows = ()) -> Expectations:
    """Expectations from the catalogue and a policy's key `bandwidth`. Raises
    UserError."""
    measured = [{**row, "name": POLICY, "high_gb_s": row["reached_gb_s"]} for row in policy]
    return Expectations([*measured, *_table("bandwidth")], normal_rates(_table("counter_rates")))


def _table(name: str) -> Rows:
    return list(table(name).values())
