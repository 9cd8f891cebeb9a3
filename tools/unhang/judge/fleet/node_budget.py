"""The processor time that judging a node may take. It is charged to the node, so that no rule is
stopped because of one node's document."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

# of one node; after nodes have used CROWD_CPU_S beyond their share, the smaller one
NODE_CPU_S, CROWDED_NODE_CPU_S = 15.0, 1.0
CROWD_CPU_S = 30.0


class NodeTooCostly(Exception):
    """A node document that takes more processor time to judge than any regular one."""


@dataclass
class NodeBudget:
    """The time of the node that is judged now. forgive(s): time that counts for no rule; began_s: 0
    while no node is judged."""

    forgive: Callable[[float], None]
    began_s: float = 0.0
    crowd_s: float = CROWD_CPU_S

    def begin(self) -> None:
        """Starts a node; the time that the previous one took beyond its share is counted."""
        now = time.process_time()
        if self.began_s and now - self.began_s > CROWDED_NODE_CPU_S:
            self.crowd_s -= now - self.began_s
            self.forgive(now - self.began_s)
        self.began_s = now

    def end(self) -> None:
        """No node is judged from here on."""
        self.began_s = 0.0

    def check(self) -> None:
        """Raises NodeTooCostly if the node has used its processor time."""
        most = NODE_CPU_S if self.crowd_s > 0 else CROWDED_NODE_CPU_S
        if self.began_s and time.process_time() - self.began_s > most:
            raise NodeTooCostly(
                f"it takes more than {most:g} s of processor time; see how long its lists are"
            )
