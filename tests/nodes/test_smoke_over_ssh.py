"""The smoke test over four real nodes by ssh: gloo under real torch."""

from __future__ import annotations

import torch_in_nodes
from four_nodes import NAMES
from smoke_launches import SMALL, nothing_left, smoke

pytestmark = torch_in_nodes.needs_torch


def test_four_nodes_pass_over_ssh_and_nothing_stays_behind(fleet):
    done = smoke(fleet, *SMALL)
    assert done.code == 0, done.result["suspects"]
    result = done.result
    assert (result["verdict"], result["launcher"], result["world_size"]) == ("pass", "fabric", 4)
    assert [row["host"] for row in result["hosts"]] == list(NAMES)
    assert result["rendezvous"]["interface"] == "host0"
    assert result["rendezvous"]["address"] == fleet.nodes["gpu001"].address
    assert "the other 3 nodes have a route" in result["rendezvous"]["why"]
    nothing_left(fleet)
