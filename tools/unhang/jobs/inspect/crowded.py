"""Ranks that share a GPU while others of their node have no process, of looks and of samples.
Values in, words out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unhang.core.verdict.job import RankLook
from unhang.core.verdict.rendering import fold_ranks
from unhang.jobs.inspect.evidence import NodeEvidence


def shared_words(ranks: Sequence[int], gpu: object, idle: int, where: str = "") -> str:
    """ranks 0-1 share GPU 0; 3 other GPUs have none: ..."""
    rest = (
        f"; {idle} other {'GPU has' if idle == 1 else 'GPUs have'} none: does the program choose"
        " its device by LOCAL_RANK?"
    )
    return f"ranks {fold_ranks(list(ranks))} share GPU {gpu}{where}{rest if idle else ''}"


def crowded(nodes: Sequence[NodeEvidence], looks: Sequence[RankLook]) -> Iterator[str]:
    """A line for each GPU that several ranks share in both looks while another idles there."""
    for node in nodes:
        own = [look for look in looks if look.host == node.host]
        rank_of = {look.pid: look.rank for look in own if look.rank is not None}
        first, second = ({gpu.name: gpu.pids for gpu in gpus} for gpus in node.gpus)
        idle = sum(not pids and not second.get(index, (0,)) for index, pids in first.items())
        for index, pids in first.items() if idle else ():
            both = [pid for pid in pids if pid in rank_of and pid in second.get(index, ())]
            if len(both) > 1:
                where = f" on {node.host}" if len(nodes) > 1 else ""
                yield shared_words(sorted({rank_of[pid] for pid in both}), index, idle, where)
