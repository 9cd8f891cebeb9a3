"""Phase init: creates the communicator."""

from __future__ import annotations

import time
from typing import Any

from .limits import STEP_S
from .mapped import mapped_libraries, nccl_in_process
from .run import Failed, Run, drill


def phase_init(run: Run) -> dict[str, Any]:
    """Creates the communicator. NCCL creates it at the first collective, so this phase runs one."""
    import datetime

    limit_s = 15 + run.world * 0.05
    run.step("create the process group", limit_s)
    drill(run)
    # the step's own deadline comes first; torch's timeout is only a second safeguard
    timeout = datetime.timedelta(seconds=limit_s + 60)
    began = time.perf_counter()
    # Without a device_id: with one, torch would split each further group from this one, one after
    # the other and while nothing else may run on it.
    run.dist.init_process_group(
        run.backend, store=run.store, rank=run.rank, world_size=run.world, timeout=timeout
    )
    first = run.torch.ones(1, device=run.device)
    run.collective(
        "first all_reduce", lambda: run.dist.all_reduce(first), expected_s=(limit_s - STEP_S) / 3
    )
    if int(first) != run.world:
        raise Failed("the first all_reduce must give %d, and gave %s" % (run.world, first.item()))
    libraries = nccl_in_process() if run.backend == "nccl" else []
    return {
        "init_ms": round((time.perf_counter() - began) * 1e3, 1),
        "nccl": libraries,
        "net_plugins": mapped_libraries("libnccl-net"),
    }
