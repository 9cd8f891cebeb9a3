"""The policies of a run's nodes, each distinct one checked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from unhang.core.run.documents import NodeDocument
from unhang.core.schemas.policy import PolicyFile, Waiver, one_line, policy_faults, waivers_of


@dataclass(frozen=True)
class UsedPolicy:
    """The policy by which nodes are judged.

    number    equal for equal policies
    policy    {} if it has a fault
    fault     its faults in one line, "" without any; a finding says it
    waivers   by the id of their rule
    """

    number: int
    policy: dict[str, Any]
    fault: str
    waivers: dict[str, list[Waiver]]


@dataclass(frozen=True)
class RunPolicies:
    """override: the policy that replaces the run's own; thresholds: names that rules read; files:
    the inventory's, that define a policy."""

    override: PolicyFile | None
    thresholds: tuple[str, ...]
    files: tuple[str, ...] = ()
    known: dict[bytes, UsedPolicy] = field(default_factory=dict)

    def of(self, document: NodeDocument) -> UsedPolicy:
        """The policy of one node."""
        policy = (
            document.policy if self.override is None else self.override.for_groups(document.groups)
        )
        key = msgspec.json.encode(policy)
        if key not in self.known:
            faults = policy_faults(policy, self.thresholds)
            usable: dict[str, Any] = {} if faults else policy
            waivers: dict[str, list[Waiver]] = {}
            for waiver in waivers_of(usable):
                waivers.setdefault(waiver.rule, []).append(waiver)
            fault = "; ".join(one_line(one, self._file(document)) for one in faults[:5])
            self.known[key] = UsedPolicy(len(self.known), usable, fault, waivers)
        return self.known[key]

    def _file(self, document: NodeDocument) -> str:
        """The end of the path of the file that gives this node its policy; "" if that is not
        known."""
        names = {document.host, *document.groups}
        paths = [Path(one) for one in self.files if self.override is None]
        own = [path for path in paths if path.stem in names or path.parent.name in names] or (
            paths if len(paths) == 1 else []
        )
        return "/".join(own[0].parts[-2:]) if len(own) == 1 else ""
