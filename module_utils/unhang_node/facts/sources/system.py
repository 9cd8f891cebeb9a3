"""Source `system`: procfs, sysfs and files of the node itself, section by section; those that are
least likely to stall come first. The root's watch names every file before it is opened, so that a
stuck file is known by name and costs only the facts after it."""

from __future__ import annotations

from ...base.section import one_line, read_section
from ..sections.kernel import read_kernel
from ..sections.limits import read_limits
from ..sections.network import read_network
from ..sections.node import read_node
from ..sections.nvidia_devices import find_nvidia
from ..sections.pci import read_acs_and_iommu, read_pci_count
from ..sections.slurm import BESIDE, is_shared, read_shared_slurm
from .path_thread import read_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ...base.context import Context
    from ...base.section import SectionPiece, SourcePiece

SLURM_FIELDS = ("slurm.config", *("slurm." + field for field in BESIDE))


def read(ctx: Context) -> Iterator[SourcePiece]:
    """Yields (section, fragment, unread rows); of gpus and interconnect only the fields that are
    read from the PCI bus."""
    root = ctx.root
    root.watch = ctx.mark
    nvidia = once(lambda: find_nvidia(root))
    shared = False
    for section, reader, arguments in (
        ("node", read_node, (ctx.now_s,)),
        ("gpus", read_pci_count, (nvidia,)),
        ("interconnect", read_acs_and_iommu, (nvidia,)),
        ("network", read_network, ()),
        ("limits", read_limits, ()),
        ("kernel", read_kernel, ()),
    ):
        if ctx.wanted(section):
            piece = read_section(section, reader, root, *arguments)
            if section == "node" and is_shared(piece[2]):
                shared = True
                piece = (
                    piece[0],
                    piece[1],
                    [row for row in piece[2] if row["field"] not in SLURM_FIELDS],
                )
            yield piece
    if shared:
        yield _shared_slurm(ctx)


def _shared_slurm(ctx: Context) -> SectionPiece:
    """slurm.conf on a network file system, read last: a server that does not answer costs only
    this."""
    name, fields, rows = read_alone(ctx, "node", "slurm.config", read_shared_slurm)
    if isinstance(fields, dict) and fields:
        return name, fields, rows
    reason = (
        rows[0]
        if rows
        else {
            "status": "error",
            "reason": one_line(fields) if isinstance(fields, Exception) else "not read",
        }
    )
    return (
        name,
        {},
        [
            {"field": field, "status": reason["status"], "reason": reason["reason"]}
            for field in SLURM_FIELDS
        ],
    )


def once(read_it: Callable[[], Any]) -> Callable[[], Any]:
    """A function that calls read_it once; later calls return the same answer, or raise the same
    exception."""
    answers: list[Any] = []

    def answer() -> Any:
        if not answers:
            try:
                answers.append(read_it())
            except (OSError, ValueError) as problem:
                answers.append(problem)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    return answer
