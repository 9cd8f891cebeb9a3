"""Phase shapes: the sizes that hung in practice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .limits import STEP_S
from .operations import gather_whole, scatter_sum
from .pattern import wrong_elements
from .run import Failed, Run, meet

# Shapes that hung in practice. The layer is Llama 3 8B's: q, k, v, o, gate, up, down, two norms;
# the embedding is 128,256 x 4,096.
BROADCAST_ELEMENTS = 253_440_000
LAYER_ELEMENTS = 218_112_000
EMBEDDING_ELEMENTS = 525_336_576
CHUNK = 1 << 22
# gloo moves and sums a layer on the same cores that the ranks run on: a part of the layer is enough
ON_CORES = 8


def phase_shapes(run: Run) -> dict[str, Any]:
    """The sizes that hung in practice: a broadcast of 253,440,000 elements, and the layers of an 8B
    model under FSDP."""
    torch = run.torch
    elements = run.scaled(BROADCAST_ELEMENTS, 4, 2)
    held = torch.empty(elements, device=run.device)
    if run.rank == 0:
        fill(torch, held, lambda place: place + run.seed & 255)
    meet(run, "shapes")  # filling takes a core seconds, and must not look like a stalled rank
    run.collective(
        "broadcast of %d elements" % elements,
        lambda: run.dist.broadcast(held, 0),
        size_bytes=elements * 4,
    )
    run.step("compare what came", compare_s(run, elements))
    wrong = differing(torch, held, lambda place: place + run.seed & 255)
    held = None  # the next collectives need its memory
    layers = []
    for name, asked in (
        ("embedding", EMBEDDING_ELEMENTS),
        ("layer 1", LAYER_ELEMENTS),
        ("layer 2", LAYER_ELEMENTS),
    ):
        size = run.scaled(asked if run.device.type == "cuda" else asked // ON_CORES, 2, 3)
        layers.append(size)
        wrong += gather_and_scatter(run, name, size)
    if wrong:
        raise Failed(
            "large messages arrived with wrong content: %d elements are wrong" % wrong,
            wrong=wrong,
        )
    scaled = (
        elements < BROADCAST_ELEMENTS // run.world * run.world
        or layers[0] < EMBEDDING_ELEMENTS // run.world * run.world
    )
    return {"broadcast_elements": elements, "layer_elements": layers, "scaled": scaled}


def gather_and_scatter(run: Run, name: str, size: int) -> int:
    """Runs FSDP's collectives for a layer of `size` bfloat16: all_gather of parameters,
    reduce_scatter of gradients. Returns wrong elements of both."""
    torch, share = run.torch, size // run.world
    part = torch.empty(share, dtype=torch.bfloat16, device=run.device)
    whole = torch.empty(size, dtype=torch.bfloat16, device=run.device)
    fill(torch, part, content_of(run.rank))
    run.collective(
        "all_gather of %s" % name, lambda: gather_whole(run, whole, part), size_bytes=size * 2
    )
    run.step("compare what was gathered", compare_s(run, size))
    wrong = sum(
        differing(torch, whole[at * share :][:share], content_of(at)) for at in range(run.world)
    )
    # Every second element is one; whether the first is depends on the rank: sums are exact up to
    # 256 ranks.
    fill(torch, whole, lambda place: place + run.rank & 1)
    run.collective(
        "reduce_scatter of %s" % name, lambda: scatter_sum(run, part, whole), size_bytes=size * 2
    )
    run.step("compare what was reduced", compare_s(run, share))
    # odd ranks put ones at even places, even ranks at odd places
    first, odd = share * run.rank, run.world // 2
    return wrong + (
        differing(torch, part, lambda place: odd + (place + first & 1) * (run.world - 2 * odd))
        if run.world <= 256
        else 0
    )


def content_of(source: int) -> Callable[[Any], Any]:
    """The expected value at each place of a rank's part of a gathered layer."""
    return lambda place: place + source * 37 & 127


def fill(torch: Any, held: Any, content: Callable[[Any], Any]) -> None:
    """Sets each element to the value of `content` for its place (int32), in pieces for which there
    is memory."""
    for start in range(0, held.numel(), CHUNK):
        piece = held[start : start + CHUNK]
        piece.copy_(
            content(
                torch.arange(start, start + piece.numel(), dtype=torch.int32, device=held.device)
            )
        )


def differing(torch: Any, found: Any, content: Callable[[Any], Any]) -> int:
    """How many elements differ from the value of `content` for their place."""
    wrong = 0
    for start in range(0, found.numel(), CHUNK):
        piece = found[start : start + CHUNK]
        expected = content(
            torch.arange(start, start + piece.numel(), dtype=torch.int32, device=found.device)
        ).to(found.dtype)
        wrong += wrong_elements(piece, expected)
    return wrong


def compare_s(run: Run, elements: int) -> float:
    """How long a comparison may take: a GPU compares a billion elements a second or more, a busy
    core some millions."""
    return STEP_S + elements / (1e9 if run.device.type == "cuda" else 1e7)
