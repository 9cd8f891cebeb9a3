"""Phase environment: which torch, which NCCL, which settings."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from .binding import device_index
from .context import begin_context
from .limits import VERSION
from .mapped import boot_id, nccl_conf_lines, nccl_in_process, read_driver, shown_variables
from .run import Failed, Run
from .survey import gpus
from .training import load_training


def phase_environment(run: Run) -> dict[str, Any]:
    """Reports which torch, which NCCL and which settings the rank really uses, not those that it
    should use."""
    maker = begin_context(device_index(run)) if run.plan.get("backend") != "gloo" else None
    run.step("import torch", run.phase_until - time.monotonic())
    try:
        import torch
        import torch.distributed as dist
    except ImportError as problem:
        raise Failed(
            "torch is not installed in %s (%s); name the users' Python with --python"
            % (sys.executable, problem),
            blind=True,
        ) from None
    run.torch, run.dist = torch, dist
    import warnings

    warnings.filterwarnings("ignore")
    if not dist.is_available():
        message = "the torch in %s, %s, has no distributed support"
        raise Failed(message % (sys.executable, torch.__version__), blind=True)
    demand_interfaces()
    load_training(run)
    if maker:
        run.step("make a CUDA context", run.phase_until - time.monotonic())
        maker.join()
    run.step("look at what is loaded", run.phase_until - time.monotonic())
    run.backend = choose_backend(run)
    run.facts = {
        "payload": VERSION, "backend": run.backend, "torch": str(torch.__version__),
        "cuda": torch.version.cuda, "python": sys.version.split()[0],
        "executable": sys.executable, "driver": read_driver(),
        "nccl": nccl_in_process() if run.backend == "nccl" else [],
        "variables": shown_variables(os.environ), "nccl_conf": nccl_conf_lines(),
        "machine": boot_id() + os.environ.get("NCCL_HOSTID", ""), "host": run.host,
        "pid": os.getpid(), "world": run.world, "gpus": [one["model"] for one in gpus()],
    }  # fmt: skip
    return dict(run.facts)


def demand_interfaces() -> None:
    """Raises Failed for a setting that excludes every network interface of this node."""
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        present = [one for _, one in socket.if_nameindex()]
        if name in os.environ and not names_interface(name, os.environ[name], present):
            message = "%s=%s names no interface of this node; it has %s"
            raise Failed(message % (name, os.environ[name], ", ".join(present)), variable=name)


def choose_backend(run: Run) -> str:
    """The plan's backend, or nccl where torch has it and a GPU. Raises Failed for nccl without a
    GPU."""
    has_gpu = run.torch.cuda.is_available()
    backend = run.plan.get("backend") or "auto"
    if backend == "auto":
        backend = "nccl" if has_gpu and run.dist.is_nccl_available() else "gloo"
    if backend == "nccl" and not has_gpu:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        raise Failed(
            "torch %s can use no GPU here; CUDA_VISIBLE_DEVICES=%s"
            % (run.torch.__version__, visible),
            blind=True,
        )
    return str(backend)


def names_interface(variable: str, value: str, present: Sequence[str]) -> bool:
    """Whether the setting allows at least one interface. NCCL takes prefixes, =exact names and
    ^exclusions; gloo exact names.

    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
    """
    if not value:
        return True
    if variable == "GLOO_SOCKET_IFNAME":
        return any(name in present for name in value.split(","))
    without, exact = value.startswith("^"), value.lstrip("^").startswith("=")
    wanted = value.lstrip("^=").split(",")
    matching = [
        name
        for name in present
        if any(name == one if exact else name.startswith(one) for one in wanted)
    ]
    return len(matching) < len(present) if without else bool(matching)
