"""Source `system`: procfs, sysfs and files of the node itself, section by section; those that are least likely to stall come first. The root's watch names
every file before it is opened, so that a stuck file is known by name and costs only the facts after it.
"""

from __future__ import annotations

from ..section import read_section
from ..sections.kernel import read_kernel
from ..sections.limits import read_limits
from ..sections.network import read_network
from ..sections.node import read_node
from ..sections.pci import find_nvidia, read_acs_and_iommu, read_pci_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..context import Context
    from ..section import SourcePiece


def read(ctx: Context) -> Iterator[SourcePiece]:
    """Yields (section, fragment, unread rows); of gpus and interconnect only the fields that are read from the PCI bus."""
    root = ctx.root
    root.watch = ctx.mark
    nvidia = once(lambda: find_nvidia(root))
    for section, reader, arguments in (
        ("node", read_node, (ctx.now_s,)),
        ("gpus", read_pci_count, (nvidia,)),
        ("interconnect", read_acs_and_iommu, (nvidia,)),
        ("network", read_network, ()),
        ("limits", read_limits, ()),
        ("kernel", read_kernel, ()),
    ):
        if ctx.wanted(section):
            yield read_section(section, reader, root, *arguments)


def once(read_it: Callable[[], Any]) -> Callable[[], Any]:
    """A function that calls read_it once; later calls return the same answer, or raise the same exception."""
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
