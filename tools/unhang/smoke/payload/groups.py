"""The process groups of phase overlap, whose communicators are created at the same time, while
earlier phases run."""

from __future__ import annotations

import threading
from typing import Any

from .operations import phase_operation
from .run import Run


def mesh(world: int) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
    """(groups of the first kind, groups of the second kind): halves, and every second rank. Each
    rank belongs to one group of each kind."""
    everybody = list(range(world))
    return (everybody[: world // 2], everybody[world // 2 :]), (everybody[::2], everybody[1::2])


def has_mesh(world: int) -> bool:
    """Whether there are enough ranks for two groups of two."""
    return world >= 4 and world % 2 == 0


class OverlapGroups:
    """A second group of the whole world, and this rank's two groups of a mesh: (ranks, group) each,
    None where there is no mesh."""

    def __init__(self, run: Run) -> None:
        dist = run.dist
        run.step("create more groups", 15 + run.world * 0.05)
        self.second = dist.new_group(list(range(run.world)))
        made = (
            [[(ranks, dist.new_group(ranks)) for ranks in kind] for kind in mesh(run.world)]
            if has_mesh(run.world)
            else []
        )
        self.mesh = [next(one for one in kind if run.rank in one[0]) for kind in made]
        self.problems: list[Exception] = []
        own = [self.second] + [group for _, group in self.mesh]
        self.makers = [
            threading.Thread(target=self.connect, args=(run, group), daemon=True)
            for group in own
            if run.device.type == "cuda"
        ]
        for maker in self.makers:
            maker.start()

    def connect(self, run: Run, group: Any) -> None:
        """Creates the group's communicator without a collective. A torch that cannot do this
        creates it with the first collective."""
        try:
            run.torch.cuda.set_device(run.device)
            backend = group._get_backend(run.device)
            if hasattr(backend, "eager_connect_single_device"):
                backend.eager_connect_single_device(run.device)
        except Exception as problem:
            self.problems.append(problem)  # reported by the phase that uses the groups

    def await_all(self, run: Run) -> None:
        """Waits until all groups exist. Raises the error of their creation."""
        run.step("wait for the communicators of more groups", 15 + run.world * 0.05)
        for maker in self.makers:
            maker.join()
        if self.problems:
            raise self.problems[0]

    def destroy(self, run: Run) -> None:
        """Ends all of them at the same time. Raises the error of one that failed.

        NCCL's thread that passes file descriptors checks every 500 ms whether to end, and the end
        of a communicator waits for it: one after the other, each took 0.5 s
        (https://github.com/NVIDIA/nccl/blob/master/src/proxy.cc, ncclProxyServiceUDS).
        """
        own = [self.second] + [group for _, group in self.mesh]
        leavers = [
            threading.Thread(target=self.leave, args=(run, group), daemon=True) for group in own
        ]
        for leaver in leavers:
            leaver.start()
        for leaver in leavers:
            leaver.join()
        if self.problems:
            raise self.problems[0]

    def leave(self, run: Run, group: Any) -> None:
        """Destroys one group, in a thread of its own. Unless its device is set, the thread would
        use GPU 0 and create a context there."""
        try:
            if run.device.type == "cuda":
                run.torch.cuda.set_device(run.device)
            run.dist.destroy_process_group(group)
        except Exception as problem:
            self.problems.append(problem)


def phase_all_to_all(run: Run) -> None:
    """Runs the operation whose first call connects every pair of ranks and takes seconds; meanwhile
    the groups of phase overlap are created."""
    if "overlap" in run.phases:
        run.groups = OverlapGroups(run)
    return phase_operation(run)
