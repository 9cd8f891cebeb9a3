"""Phase p2p_matrix: copies between the GPUs of a machine."""

from __future__ import annotations

from typing import Any

from .pattern import pattern
from .run import Failed, Run, arrive, await_all


def phase_p2p_matrix(run: Run) -> dict[str, Any] | None:
    """Copies between each pair of this machine's GPUs, done by the machine's first rank: whether
    the content is right, and how fast it is."""
    enough = run.device.type == "cuda" and run.torch.cuda.device_count() > 1
    try:
        if enough and run.local_rank == 0:
            copy_all(run)
    finally:
        arrive(run, "p2p")
    await_all(run, "p2p")
    return None if enough else {"skip": "fewer than two GPUs here"}


def copy_all(run: Run) -> None:
    """Tries every pair in both directions. Raises Failed for wrong content."""
    torch, size, rows = run.torch, 64 << 20, []
    count = torch.cuda.device_count()
    for source in range(count):
        held = pattern(
            torch, torch.device("cuda", source), size // 4, source, run.seed, 256, torch.float32
        )
        for target in range(count):
            if source != target:
                run.step("copy from GPU %d to GPU %d" % (source, target))
                rows.append(copy_row(torch, held, source, target))
        held = None
    run.event("p2p", rows=rows)
    bad = [row for row in rows if row["wrong"]]
    if bad:
        message = (
            "expected exact copies between GPUs, found wrong content from GPU %(from)d to GPU"
            " %(to)d" % bad[0]
        )
        raise Failed(message, wrong=sum(row["wrong"] for row in bad))


def copy_row(torch: Any, held: Any, source: int, target: int) -> dict[str, Any]:
    """Tries one pair: {from, to, peer_access, gb_s, wrong}."""
    device = torch.device("cuda", target)
    came = torch.empty_like(held, device=device)
    came.copy_(held)
    torch.cuda.synchronize(source)
    torch.cuda.synchronize(target)
    with torch.cuda.device(source):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(10):
            came.copy_(held, non_blocking=True)
        last.record()
        torch.cuda.synchronize(source)
    wrong = int((came.to(held.device) != held).sum())
    rate = held.numel() * 4 * 10 / (first.elapsed_time(last) * 1e-3) / 1e9
    return {
        "from": source,
        "to": target,
        "peer_access": bool(torch.cuda.can_device_access_peer(target, source)),
        "gb_s": round(rate, 1),
        "wrong": wrong,
    }
