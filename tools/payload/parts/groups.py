"""The process groups of phase overlap, whose communicators come about at the same time, and while the phases before it run."""

from __future__ import annotations

import threading
from typing import Any

from .operations import phase_operation
from .run import Run


def mesh(world: int) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
    """(groups of the first kind, of the second): halves, and every second rank. Each rank is in one of each kind."""
    everybody = list(range(world))
    return (everybody[: world // 2], everybody[world // 2 :]), (everybody[::2], everybody[1::2])


def has_mesh(world: int) -> bool:
    """Whether there are enough ranks for two groups of two."""
    return world >= 4 and world % 2 == 0


class OverlapGroups:
    """A second group of the whole world, and this rank's two groups of a mesh: (ranks, group) each, None where there is no mesh."""

    def __init__(self, run: Run) -> None:
        dist = run.dist
        run.step("create more groups", 15 + run.world * 0.05)
        self.second = dist.new_group(list(range(run.world)))
        made = [[(ranks, dist.new_group(ranks)) for ranks in kind] for kind in mesh(run.world)] if has_mesh(run.world) else []
        self.mesh = [next(one for one in kind if run.rank in one[0]) for kind in made]
        self.problems: list[Exception] = []
        own = [self.second] + [group for _, group in self.mesh]
        self.makers = [threading.Thread(target=self.connect, args=(run, group), daemon=True) for group in own if run.device.type == "cuda"]
        for maker in self.makers:
            maker.start()

    def connect(self, run: Run, group: Any) -> None:
        """The group's communicator, without a collective. A torch that cannot do that makes it with the first one."""
        try:
            run.torch.cuda.set_device(run.device)
            backend = group._get_backend(run.device)
            if hasattr(backend, "eager_connect_single_device"):
                backend.eager_connect_single_device(run.device)
        except Exception as problem:
            self.problems.append(problem)  # reported where the groups are used

    def await_all(self, run: Run) -> None:
        """Until all are there. Raises what was raised in making them."""
        run.step("wait for the communicators of more groups", 15 + run.world * 0.05)
        for maker in self.makers:
            maker.join()
        if self.problems:
            raise self.problems[0]

    def destroy(self, run: Run) -> None:
        """All of them at the same time. Raises what was raised in it.

        NCCL's thread that passes file descriptors looks every 500 ms whether it shall end, and the end of a communicator waits for it: one after the other that
        was 0.5 s each (https://github.com/NVIDIA/nccl/blob/master/src/proxy.cc, ncclProxyServiceUDS).
        """
        own = [self.second] + [group for _, group in self.mesh]
        leavers = [threading.Thread(target=self.leave, args=(run, group), daemon=True) for group in own]
        for leaver in leavers:
            leaver.start()
        for leaver in leavers:
            leaver.join()
        if self.problems:
            raise self.problems[0]

    def leave(self, run: Run, group: Any) -> None:
        """One group, in a thread of its own that would else take GPU 0 for its device, and a context there."""
        try:
            if run.device.type == "cuda":
                run.torch.cuda.set_device(run.device)
            run.dist.destroy_process_group(group)
        except Exception as problem:
            self.problems.append(problem)


def phase_all_to_all(run: Run) -> None:
    """The operation, whose first call joins every pair of ranks and takes seconds; meanwhile the groups of phase overlap come about."""
    if "overlap" in run.phases:
        run.groups = OverlapGroups(run)
    return phase_operation(run)
