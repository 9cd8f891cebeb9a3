"""Source `kernel_log`: the kernel's own log, or a file in its place. It has its own child process,
because reading a log on a dead file system hangs."""

from __future__ import annotations

from ...base.section import read_section
from ..sections.faults import read_faults

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...base.context import Context
    from ...base.section import SourcePiece


def read(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section faults."""
    ctx.root.watch = ctx.mark
    if ctx.wanted("faults"):
        yield read_section("faults", read_faults, ctx.root, ctx.options.get("kernel_log"))
