"""Real nodes on one machine: booted Debian systems with their own sshd, of which nothing remains
afterwards.

    with Testbed(cache, work, names) as bed:
        bed.nodes["n1"].ssh("uname -n")
        subprocess.run(bed.inside(["ansible-playbook", ...]))

A test bed has namespaces of its own (mounts, network, processes). Two beds on one machine cannot
reach each other, the nodes reach only each other and the controller, and the kernel itself removes
everything when the bed's first process ends.
"""

from __future__ import annotations

from .bed import Testbed, TestbedError
from .node import Node

__all__ = ["Node", "Testbed", "TestbedError"]
