"""What a rank does, from the functions that it stands in. Values in, values out.

The youngest frame that a row knows decides; the first frame that is no library's says where in the user's code that is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

COLLECTIVE, LOADING, COMPILING, SAVING, RESTORING, STARTING, LOCKED, EVALUATING, IMPORTING, CODE = (
    *("collective", "loading", "compiling", "saving", "restoring", "starting", "waiting for a lock", "evaluating", "importing", "code"),
)
# (activity, function, end of the file's path). Sources: torch 2.0 to 2.13, triton 3, filelock, deepspeed, lightning, transformers.
_ROWS = tuple(
    (activity, re.compile(function), re.compile(path))
    for activity, function, path in (
        (LOCKED, r"wait|acquire", r"/torch/utils/file_baton\.py|/filelock/\w+\.py|/torch/_inductor/runtime/.*lock\w*\.py"),
        (
            STARTING,
            r"init_process_group|_new_process_group_helper|_store_based_barrier|new_group|new_subgroups\w*|init_device_mesh|initialize_dist\w*",
            r"\.py",
        ),
        (STARTING, r".*", r"/torch/distributed/(?:rendezvous|elastic/.*)\.py|/torch/_C/_distributed_c10d\.py"),
        (STARTING, r"init_distributed|_init_global_process_group", r"\.py"),
        (COLLECTIVE, r".*", r"/torch/distributed/(?:distributed_c10d|_functional_collectives(?:_impl)?|nn/functional|utils)\.py"),
        (COLLECTIVE, r"synchronize|wait\w*", r"/torch/(?:cuda|accelerator)/(?:__init__|streams)\.py|/torch/xpu/__init__\.py"),
        (LOADING, r".*", r"/torch/utils/data/(?:dataloader|_utils/.*|dataset|datapipes/.*)\.py|/torchdata/.*\.py|/webdataset/.*\.py"),
        (COMPILING, r".*", r"/torch/(?:_inductor|_dynamo|_functorch|fx)/.*\.py|/triton/(?:compiler|backends|runtime/(?:jit|autotuner|build))\S*\.py"),
        (COMPILING, r"_jit_compile|_write_ninja\w*|_run_ninja\w*|_build\w*|load|load_inline|compile\w*", r"/torch/utils/cpp_extension\.py"),
        (SAVING, r"_?save\w*|dump\w*|write_\w+", r"/torch/(?:serialization|distributed/checkpoint/.*)\.py|/safetensors/.*\.py|/orbax/.*\.py"),
        (SAVING, r"_?save_(?:checkpoint|model|state|pretrained)\w*|_?save_rng_state|_zero3_consolidated\w*", r"\.py"),
        (RESTORING, r"_?load\w*|read_\w+", r"/torch/(?:serialization|distributed/checkpoint/.*)\.py|/safetensors/.*\.py"),
        (RESTORING, r"load_checkpoint\w*|resume_from_checkpoint|restore_checkpoint", r"\.py"),
        (EVALUATING, r"(?:run_)?(?:evaluate|evaluation|validate|validation|eval)(?:_\w+)?", r"\.py"),
    )
)
_FRAME = re.compile(r"^(?P<function>.{1,200}) \((?P<path>.{1,400}):(?P<line>\d{1,9})\)$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<|/torch/")


@dataclass(frozen=True)
class Activity:
    """name: one of those above. function, place: the frame that decides it. user: the caller in the user's code, "" without one."""

    name: str
    function: str
    place: str
    user: str

    @property
    def where(self) -> str:
        """all_reduce, called by step (train.py:88)."""
        own = f"{self.function} ({self.place})"
        return own if not self.user or self.user == own else f"{self.function}, called by {self.user}"


def activity_of(frames: Sequence[str]) -> Activity | None:
    """What a thread does whose frames these are, youngest first; None without frames."""
    parsed = [found for found in (_FRAME.match(frame) for frame in frames) if found]
    if not parsed:
        return None
    user = next((_shown(found) for found in parsed if not _LIBRARY.search(found["path"])), "")
    if user.startswith("<module> (") and any(found["path"].startswith("<frozen importlib") for found in parsed):
        return Activity(IMPORTING, "import", _file_and_line(next((found for found in parsed if not found["path"].startswith("<")), parsed[0])), user)
    for found in parsed:
        for name, function, path in _ROWS:
            if function.fullmatch(found["function"].rpartition(".")[2]) and path.search(found["path"]):
                return Activity(name, _public(parsed, found) if _LIBRARY.search(found["path"]) else found["function"], _file_and_line(found), user)
    first = next((found for found in parsed if not _LIBRARY.search(found["path"])), parsed[0])
    return Activity(CODE, first["function"], _file_and_line(first), user)


def user_frames(frames: Sequence[str]) -> list[str]:
    """The frames that are no library's: loops of a library that wait move without any progress of the job."""
    return [frame for frame in frames if (found := _FRAME.match(frame)) and not _LIBRARY.search(found["path"])]


def function_names(frames: Sequence[str]) -> list[str]:
    """Frames without their lines: a loop that only waits moves between its lines."""
    return [frame.rpartition(":")[0] for frame in frames]


def _public(parsed: Sequence[re.Match[str]], found: re.Match[str]) -> str:
    """The function that the user called in the same file: all_reduce rather than a helper of it."""
    same = [one for one in parsed[parsed.index(found) :] if one["path"] == found["path"] and not one["function"].startswith("<")]
    return (same or [found])[-1]["function"].rpartition(".")[2]


def _file_and_line(found: re.Match[str]) -> str:
    return f"{found['path'].rsplit('/', 1)[-1]}:{found['line']}"


def _shown(found: re.Match[str]) -> str:
    return f"{found['function']} ({_file_and_line(found)})"
