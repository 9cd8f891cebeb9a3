"""Arguments of a source: the node's files, the options, and a mark that names the call that it is
about to make.

The mark lies in memory shared with the parent: when a source falls silent, the parent reads there
which call did not return, and how long that call was allowed to take. A mark costs about a
microsecond, so every call that may block sets one.
"""

from __future__ import annotations

import mmap
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from .root import Root
    from .section import SourcePiece

    MarkFunction = Callable[..., None]
    ReadSource = Callable[["Context"], Iterator[SourcePiece]]

MARK_BYTES = 512
# when the mark was set (monotonic clock, s), how long the call may take (s; 0: as long as any
# call), length of the text
_HEAD = struct.Struct("=ddH")

DEFAULTS = {
    "gather_subset": ["all"],
    "rootfs": "/",  # one folder, or a list of layers, most specific first
    "procfs": None,
    "sysfs": None,
    "collected_via": "local",
    "torch_environments": [],  # folders that hold site-packages
    "nccl_roots": [],  # folders to look for libnccl in
    "hash_libraries": False,
    "p2p_matrix": "read",  # or full: write, NVLink and atomics for every pair
    "kernel_log": None,  # a file in place of the kernel's own log
    "nvml_recording": None,  # a recording of NVML's answers, call by call, in place of the driver
    "silence_s": 4.0,  # longest time that a single call may take
    "deadline_s": 15.0,  # longest time that one source may take in total
    # longest time of NVML's init and first handles; None: silence_s, or 20 s where persistence is
    # off
    "first_handle_s": None,
}


class Mark:
    """The name of the call that is under way, in memory that parent and child share."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, MARK_BYTES)

    def set(self, text: str, allow_s: float = 0.0) -> None:
        """Marks that `text` is about to be done; it may take allow_s seconds (0: as long as any
        call)."""
        name = text.encode("utf-8", "replace")[: MARK_BYTES - _HEAD.size]
        self.memory[: _HEAD.size + len(name)] = (
            _HEAD.pack(time.monotonic(), allow_s, len(name)) + name
        )

    def get(self) -> tuple[str, float, float]:
        """(text, monotonic seconds when it was set, allowed seconds or 0)."""
        set_at, allow_s, length = _HEAD.unpack_from(self.memory, 0)
        name = self.memory[_HEAD.size : _HEAD.size + min(length, MARK_BYTES - _HEAD.size)]
        return name.decode("utf-8", "replace"), set_at, allow_s


class Context:
    """root: Root; options: DEFAULTS with what the caller changed; sections: frozenset of wanted
    names; load_pynvml: callable that returns the module; now_s: seconds since 1970 at the start;
    mark(text, allow_s=0.0): see Mark.set."""

    def __init__(
        self,
        root: Root,
        options: dict[str, Any],
        sections: Iterable[str],
        load_pynvml: Callable[[], Any] | None,
        mark: MarkFunction | None = None,
        now_s: float | None = None,
    ) -> None:
        self.root = root
        self.options = options
        self.sections = frozenset(sections)
        self.load_pynvml = load_pynvml
        self.now_s = time.time() if now_s is None else now_s
        self.mark = mark or no_mark

    def wanted(self, section: str) -> bool:
        """True when the caller asked for this section."""
        return section in self.sections

    def marking(self, mark: Mark) -> Context:
        """The same context for one child, which sets `mark`."""
        return Context(
            self.root, self.options, self.sections, self.load_pynvml, mark.set, self.now_s
        )


def no_mark(_text: str, _allow_s: float = 0.0) -> None:
    """For readers outside a probe's child, as in tests."""
