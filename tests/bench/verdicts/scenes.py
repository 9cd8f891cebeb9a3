"""What record.py injects, and what is right as an answer: fixed before any answer was seen."""

from __future__ import annotations

from dataclasses import dataclass

SHAPES = ("data", "tensor", "pipeline", "expert")
ROUNDS = {1: SHAPES, 2: (*SHAPES, "mixed"), 3: (*SHAPES, "mixed")}
BESIDE = 3  # the round in which strangers compute on the same GPUs and processors
# {kind: (what the injector did, kinds of evidence that cannot show which rank it was)}
FAULTS = {
    "never": ("sleeps and never enters its next operation", ()),
    "stopped": ("stopped by SIGSTOP", ()),
    "killed": ("killed by SIGKILL", ()),
    "operation": ("calls all_gather where its group calls another operation", ()),
    "size": (
        "hands 256 elements to an all_reduce of 16 million",
        ("ras", "ras-json", "stacks", "stacks-json"),
    ),
    "kernel": (
        "its GPU runs a kernel without end; the CPU has launched all operations",
        ("log", "ras", "ras-json", "stacks", "stacks-json"),
    ),
    "gil": ("holds the interpreter's lock in a C call", ()),
    "loader": ("waits for a data loader whose worker reads a FIFO without a writer", ()),
    "peer": ("sends to the stage after the next one", ()),
    "order": ("calls two groups in the opposite order", ()),
}
HEALTHY = {
    "healthy-finished": "trained to its end; dumped just before it",
    "healthy-running": "trains; everything was recorded while it ran",
    "healthy-saving": "rank 0 writes a checkpoint, all others wait in a barrier; trains on later",
}
KINDS = {BESIDE: ("never", "loader", *HEALTHY)}
ONLY_IN = {"peer": ("pipeline",)}  # needs send and recv
# by round, in turn; those of peer are of a stage that has two after it
RANKS = {1: (5, 2, 6, 1, 3, 4), 2: (3, 7, 0, 6, 1, 2, 5), 3: (4, 1, 6, 2, 7)}


@dataclass(frozen=True)
class Scene:
    """One run. faulted: the rank that the fault is in, None for a healthy job."""

    shape: str
    kind: str
    faulted: int | None
    step: int
    nccl_debug: str

    @property
    def name(self) -> str:
        return f"{self.shape}-{self.kind}"


def all_scenes(world: int, round_: int = 1) -> list[Scene]:
    """Kind by kind, so that a budget that ends early leaves each shape its share. A later round has
    the same faults in other ranks, steps and shapes: jobs that nothing was learnt from."""
    kinds = KINDS.get(round_, (*FAULTS, *HEALTHY))
    pairs = [
        (shape, kind)
        for kind in kinds
        for shape in ROUNDS[round_]
        if shape in ONLY_IN.get(kind, ROUNDS[round_])
    ]
    return [
        Scene(
            shape,
            kind,
            None if kind in HEALTHY else _faulted(kind, at, world, round_),
            (6 if round_ == 1 else 4) + at % (2 + round_),
            ("WARN", "INFO")[at // 2 % 2],
        )
        for at, (shape, kind) in enumerate(pairs)
    ]


def _faulted(kind: str, at: int, world: int, round_: int) -> int:
    if kind == "peer":  # a rank of the second of four stages
        return world // 4 + (round_ - 1) % (world // 4)
    return RANKS[round_][at % len(RANKS[round_])] % world


def truth(scene: Scene) -> dict[str, object]:
    """What is right as an answer. cannot_show: evidence from which nobody can tell the rank."""
    if scene.faulted is None:
        return {
            "healthy": True,
            "faulted": [],
            "did": HEALTHY[scene.kind],
            "cannot_show": [],
            "may_wait_for": [0] if scene.kind == "healthy-saving" else [],
        }
    did, cannot_show = FAULTS[scene.kind]
    return {
        "healthy": False,
        "faulted": [scene.faulted],
        "did": did,
        "cannot_show": list(cannot_show),
        "may_wait_for": [],
    }
