"""Phases ddp and fsdp: real steps of a small model."""

from __future__ import annotations

import contextlib
import importlib
import math
import time
from collections.abc import Sequence
from typing import Any

from .run import Failed, Run


def load_training(run: Run) -> None:
    """Loads what training needs before the ranks wait for each other: the first optimizer step
    imports modules for seconds on a busy machine."""
    if not {"ddp", "fsdp"} & set(run.phases):
        return
    torch = run.torch
    run.step("load what training needs", run.phase_until - time.monotonic())
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.distributed.fsdp")
    model = small_model(torch, checkpointed=True)
    model(torch.zeros(1, 256)).sum().backward()
    torch.optim.AdamW(model.parameters()).step()


def small_model(torch: Any, checkpointed: bool) -> Any:
    """Four small transformer blocks; with activation checkpointing, as FSDP users have it."""
    from torch.utils.checkpoint import checkpoint

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = (
                torch.nn.LayerNorm(256),
                torch.nn.Linear(256, 1024),
                torch.nn.Linear(1024, 256),
            )

        def inner(self, value: Any) -> Any:
            return value + self.down(torch.nn.functional.gelu(self.up(self.norm(value))))

        def forward(self, value: Any) -> Any:
            return (
                checkpoint(self.inner, value, use_reentrant=False)
                if checkpointed
                else self.inner(value)
            )

    torch.manual_seed(7)
    return torch.nn.Sequential(*[Block() for _ in range(4)])


def train(run: Run, model: Any) -> list[float]:
    """Ten real steps: forward, backward, optimizer. Returns losses; each must be a number."""
    torch = run.torch
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(run.seed + run.rank)
    batch = torch.randn(32, 256, device=run.device)
    losses = []
    for number in range(10):

        def train_step() -> Any:
            loss = (model(batch) - batch.flip(-1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))

        run.collective("training step %d of 10" % (number + 1), train_step)
    if not all(math.isfinite(loss) for loss in losses):
        raise Failed("the losses are not finite: %s" % losses)
    return losses


def phase_ddp(run: Run) -> dict[str, Any]:
    """Ten real steps under DistributedDataParallel; afterwards all ranks hold the same
    parameters."""
    torch = run.torch
    model = small_model(torch, checkpointed=False).to(run.device)
    run.step("wrap the model in DDP")
    wrapped = torch.nn.parallel.DistributedDataParallel(
        model, device_ids=[run.device.index] if run.device.type == "cuda" else None
    )
    losses = run.losses = train(run, wrapped)
    mine = sum(parameter.detach().double().sum() for parameter in model.parameters()).reshape(1)
    bounds = torch.cat([mine, -mine])
    run.collective(
        "compare parameters", lambda: run.dist.all_reduce(bounds, op=run.dist.ReduceOp.MAX)
    )
    if float(bounds[0] + bounds[1]) != 0.0:
        raise Failed(
            "the parameters are not the same on all ranks after DDP: their sums go from %r to %r"
            % (-float(bounds[1]), float(bounds[0]))
        )
    return {"losses": [round(losses[0], 4), round(losses[-1], 4)]}


def phase_fsdp(run: Run) -> dict[str, Any]:
    """Ten real steps under FSDP with activation checkpointing."""
    model = small_model(run.torch, checkpointed=True).to(run.device)
    run.step("wrap the model in FSDP")
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(run.device.type, (run.world,))
        for block in model:
            fully_shard(block, mesh=mesh)
        wrapped = fully_shard(model, mesh=mesh) or model
        kind = "fully_shard"
    except ImportError:
        from torch.distributed.fsdp import FullyShardedDataParallel

        if run.device.type != "cuda":
            return {"skip": "this torch has FSDP for GPUs only"}
        wrapped, kind = (
            FullyShardedDataParallel(model, device_id=run.device),
            "FullyShardedDataParallel",
        )
    losses = train(run, wrapped)
    check_losses(run, losses)
    return {"losses": [round(losses[0], 4), round(losses[-1], 4)], "kind": kind}


def check_losses(run: Run, losses: Sequence[float]) -> None:
    """The same model, data and optimizer must learn the same whether its gradients were averaged
    whole (DDP) or in shards. Raises Failed."""
    for number, (whole, sharded) in enumerate(zip(run.losses, losses)):
        if abs(whole - sharded) > 0.02 * abs(whole) + 1e-4:
            raise Failed(
                "FSDP must give the losses of DDP, and gives %.6f in place of %.6f at step %d"
                % (sharded, whole, number + 1)
            )
