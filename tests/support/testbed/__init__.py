"""Real nodes on one machine: booted Debian systems with their own sshd, and nothing left of them afterwards.

    with Testbed(cache, work, names) as bed:
        bed.nodes["n1"].ssh("uname -n")
        subprocess.run(bed.inside(["ansible-playbook", ...]))

A test bed lives in namespaces of its own (mounts, network, processes). Two beds on one machine cannot meet, the nodes reach
nothing but each other and the controller, and the kernel itself clears everything away when the bed's first process ends.
"""

from __future__ import annotations

from .bed import Testbed, TestbedError
from .node import Node

__all__ = ["Node", "Testbed", "TestbedError"]
