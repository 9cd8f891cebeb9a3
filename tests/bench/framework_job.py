"""A job of two ranks by a framework that trains for a while and then hangs: framework_job.py
accelerate | lightning | fsdp2 | jax SECONDS_OF_HEALTH.

accelerate: rank 1 waits for a sample. lightning: rank 1 waits in a callback. fsdp2: rank 1 waits in
a module's forward, rank 0 in FSDP's all_gather.
jax: rank 1 waits before a psum. What it trains is as small as can be; rank 0 says `step N`, and
`happens` when rank 1 leaves.
"""

from __future__ import annotations

import os
import sys
import time

NAME, HEALTHY_S = sys.argv[1], float(sys.argv[2])
RANK = int(os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
WIDTH, STEPS = 256, 10**9


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def wait_for_a_server_that_is_gone() -> None:
    say("happens")
    time.sleep(3600)


class Clock:
    """Steps are counted, because all ranks must leave at the same one: the first rank's pace of 50
    steps a second is assumed."""

    def __init__(self) -> None:
        self.step = 0

    def tick(self) -> bool:
        self.step += 1
        time.sleep(0.02)
        if RANK == 0 and self.step % 20 == 0:
            say(f"step {self.step}")
        return RANK == 1 and self.step >= HEALTHY_S * 50


def run_accelerate() -> None:
    import torch
    from accelerate import Accelerator

    clock = Clock()

    class Samples(torch.utils.data.IterableDataset):
        def __iter__(self):
            for _ in range(STEPS):
                if clock.tick():
                    wait_for_a_server_that_is_gone()
                yield torch.randn(WIDTH)

    accelerator = Accelerator()
    model = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in torch.utils.data.DataLoader(Samples(), batch_size=4):
        loss = model(batch.to(accelerator.device)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def run_lightning() -> None:
    import lightning
    import torch

    clock = Clock()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(WIDTH, WIDTH)

        def training_step(self, batch, _):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    class Reporter(lightning.Callback):
        def on_train_batch_start(self, *_):
            torch.cuda.synchronize()
            if clock.tick():
                wait_for_a_server_that_is_gone()

    class Samples(torch.utils.data.IterableDataset):
        def __iter__(self):
            return (torch.randn(WIDTH) for _ in range(STEPS))

    trainer = lightning.Trainer(
        accelerator="gpu", devices=2, strategy="ddp", max_steps=STEPS, logger=False,
        enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Reporter()],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(Samples(), batch_size=4))


def run_fsdp2() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    clock = Clock()

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            if clock.tick():
                wait_for_a_server_that_is_gone()
            return self.layer(x)

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    if port := os.environ.get("FRAMEWORK_JOB_DEBUG_PORT"):
        from torch.distributed.debug import start_debug_server

        start_debug_server(port=int(port))
    model = torch.nn.Sequential(Block(), torch.nn.Linear(WIDTH, WIDTH)).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        loss = model(torch.randn(4, WIDTH, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def run_jax() -> None:
    import jax
    import jax.numpy as jnp

    jax.distributed.initialize(
        os.environ["FRAMEWORK_JOB_COORDINATOR"], 2, RANK, local_device_ids=[RANK]
    )
    clock = Clock()
    x = jnp.ones((1, WIDTH))
    add = jax.pmap(lambda value: jax.lax.psum(value, "ranks"), axis_name="ranks")
    for _ in range(STEPS):
        if clock.tick():
            wait_for_a_server_that_is_gone()
        add(x).block_until_ready()


RUNS = {
    "accelerate": run_accelerate,
    "lightning": run_lightning,
    "fsdp2": run_fsdp2,
    "jax": run_jax,
}

if __name__ == "__main__":
    RUNS[NAME]()
