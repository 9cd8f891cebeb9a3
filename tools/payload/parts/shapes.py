"""Phase shapes: the sizes that hung in practice."""

from __future__ import annotations

from .limits import STEP_S
from .operations import gather_whole, scatter_sum
from .pattern import pattern, wrong_elements
from .run import Failed

# Shapes that hung in practice. The layer is Llama 3 8B's: q, k, v, o, gate, up, down, two norms; the embedding is 128,256 x 4,096.
BROADCAST_ELEMENTS = 253_440_000
LAYER_ELEMENTS = 218_112_000
EMBEDDING_ELEMENTS = 525_336_576


def phase_shapes(run):
    """The sizes that hung in practice: a broadcast of 253,440,000 elements, an 8B model's layers under FSDP."""
    torch = run.torch
    elements = run.scaled(BROADCAST_ELEMENTS, 4, 2)
    held = torch.empty(elements, device=run.device)
    chunk = 1 << 22
    for start in range(0, elements if run.rank == 0 else 0, chunk):
        piece = held[start : start + chunk]
        piece.copy_(pattern(torch, run.device, piece.numel(), 0, run.seed, 256, torch.float32, start))
    run.collective("broadcast of %d elements" % elements, lambda: run.dist.broadcast(held, 0), size_bytes=elements * 4)
    run.step("compare what came", STEP_S + elements / 5e6)
    wrong = 0
    for start in range(0, elements, chunk):
        piece = held[start : start + chunk]
        wrong += wrong_elements(torch, piece, pattern(torch, run.device, piece.numel(), 0, run.seed, 256, torch.float32, start))
    held = None  # its memory is needed for what comes
    layers = []
    for name, asked in (("embedding", EMBEDDING_ELEMENTS), ("layer 1", LAYER_ELEMENTS), ("layer 2", LAYER_ELEMENTS)):
        size = run.scaled(asked, 2, 3)
        layers.append(size)
        part = torch.full((size // run.world,), float(run.rank % 128), dtype=torch.bfloat16, device=run.device)
        whole = torch.empty(size, dtype=torch.bfloat16, device=run.device)
        run.collective("all_gather of %s" % name, lambda: gather_whole(run, whole, part), size_bytes=size * 2)  # noqa: B023 -- called at once
        for source in range(run.world):
            at = source * (size // run.world)
            wrong += int(float(whole[at]) != source % 128) + int(float(whole[at + size // run.world - 1]) != source % 128)
        whole.fill_(1)
        run.collective("reduce_scatter of %s" % name, lambda: scatter_sum(run, part, whole), size_bytes=size * 2)  # noqa: B023
        wrong += wrong_elements(torch, part, torch.full_like(part, float(run.world))) if run.world <= 256 else 0
        part = whole = None
    if wrong:
        raise Failed("expected the known content of large messages, found %d wrong elements" % wrong, wrong=wrong)
    scaled = elements < BROADCAST_ELEMENTS // run.world * run.world or layers[0] < EMBEDDING_ELEMENTS // run.world * run.world
    return {"broadcast_elements": elements, "layer_elements": layers, "scaled": scaled}
