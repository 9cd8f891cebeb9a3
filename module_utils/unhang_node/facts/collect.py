"""One call, one document: what a node is, as tools/unhang/core/schemas/node-facts-1.yaml describes
it. The Ansible module, `unhang collect` and the one-file collector call only this.

NVML takes longest, so it is started first and imported in its own child. The other sources are
imported here, once, while NVML starts: otherwise each child would compile the modules that they
share. A source that cannot be imported fails in its own child. The imports are static, because
Ansible finds the files that it packs by reading the import statements.
"""

from __future__ import annotations

import os
import resource
import stat
import time

from ..base.context import DEFAULTS, Context
from ..base.document import clean_text, cut_to_size
from ..base.probe import run_sources
from ..base.root import Root
from ..base.version import VERSION
from .merging import merge_section
from .runtime_versions import add_runtime_versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from ..base.context import ReadSource
    from ..base.probe import SourceResult
    from ..base.section import SourcePiece

    Source = tuple[str, ReadSource, tuple[str, ...], dict[str, tuple[str, ...]]]

SECTIONS = (
    "node",
    "kernel",
    "driver",
    "fabric_manager",
    "cuda",
    "nccl",
    "torch",
    "gpus",
    "interconnect",
    "network",
    "limits",
    "packages",
    "faults",
)
MINIMUM = ("node", "kernel")
CHOICES = {"p2p_matrix": ("read", "full"), "collected_via": ("ansible", "file", "local", None)}


def _nvml(ctx: Context) -> Iterator[SourcePiece]:
    # NVML alone: the driver starts up while the rest is imported
    from ..base.nvml.live import begin_warming

    warmth = begin_warming(ctx)
    from .sources import nvml

    return nvml.read(ctx, warmth)


def _system(ctx: Context) -> Iterator[SourcePiece]:
    from .sources import system

    return system.read(ctx)


def _kernel_log(ctx: Context) -> Iterator[SourcePiece]:
    from .sources import kernel_log

    return kernel_log.read(ctx)


def _software(ctx: Context) -> Iterator[SourcePiece]:
    from .sources import software

    return software.read(ctx)


def _libraries(ctx: Context) -> Iterator[SourcePiece]:
    from .sources import libraries

    return libraries.read(ctx)


def _processes(ctx: Context) -> Iterator[SourcePiece]:
    from .sources import processes

    return processes.read(ctx)


def _import_ahead(names: Iterable[str]) -> None:
    for name in names:
        try:  # noqa: SIM105 - contextlib would be imported for this alone
            __import__(f"{__package__}.sources.{name}")
        except Exception:  # noqa: S110 - its own child meets it again and reports it
            pass


# name of the source, its reader, sections whose status it decides, fields that it adds to other
# sources' sections
SOURCES: tuple[Source, ...] = (
    (
        "nvml",
        _nvml,
        ("gpus", "interconnect"),
        {"driver": ("cuda_version", "nvml_version", "gsp_firmware")},
    ),
    ("libraries", _libraries, ("nccl", "torch"), {}),
    ("software", _software, ("driver", "fabric_manager", "cuda", "packages"), {}),
    (
        "processes",
        _processes,
        (),
        {"gpus": ("holders",), "nccl": ("libraries[mapped]",), "torch": ("environments[mapped]",)},
    ),
    (
        "system",
        _system,
        ("node", "kernel", "limits", "network"),
        {"gpus": ("pci_count",), "interconnect": ("acs", "acs_enabled", "iommu")},
    ),
    ("kernel_log", _kernel_log, ("faults",), {}),
)


def collect(options: dict[str, Any], load_pynvml: Callable[[], Any]) -> dict[str, Any]:
    """The node-facts document (a dict that json.dumps takes as it is).

    options: any of context.DEFAULTS (None stands for the default). load_pynvml: returns
    nvidia-ml-py's module; called in the NVML child only, and only once libnvidia-ml.so.1 has been
    opened. Raises ValueError when the options make no sense; whatever the node does becomes part of
    the document.
    """
    started, cpu_before = time.monotonic(), _cpu_s()
    options = check_options(options)
    wanted = choose_sections(options["gather_subset"])
    layers = [options["rootfs"]] if isinstance(options["rootfs"], str) else list(options["rootfs"])
    _refuse_missing_folders(
        [("rootfs", layer) for layer in layers]
        + [(name, options[name]) for name in ("procfs", "sysfs")],
        options["silence_s"],
    )
    context = Context(
        Root(layers, options["procfs"], options["sysfs"]), options, wanted, load_pynvml
    )
    chosen = [source for source in SOURCES if wanted & (set(source[2]) | set(source[3]))]
    sections: dict[str, dict[str, Any]] = {}

    def merge(answers: list[SourceResult]) -> None:
        sections.update(
            (name, _section(name, chosen, answers)) for name in SECTIONS if name in wanted
        )
        add_runtime_versions(sections)

    pairs = [(name, read) for name, read, _, _ in chosen]
    answers = run_sources(
        pairs,
        context,
        options["silence_s"],
        options["deadline_s"],
        lambda: _import_ahead([name for name, _ in pairs[1:]]),
        merge,
    )
    _report_survivors(sections, chosen, answers)
    collector = _collector_of(options, context)
    document = cut_to_size(
        {"schema": "unhang/node-facts/1", "collector": collector, "sections": sections}
    )
    collector["duration_ms"] = round((time.monotonic() - started) * 1000, 1)
    collector["cpu_ms"] = round((_cpu_s() - cpu_before) * 1000, 1)
    return document


def _collector_of(options: dict[str, Any], context: Context) -> dict[str, Any]:
    """The document's `collector`; collect fills in the times, cut_to_size what it cut."""
    return {
        "version": VERSION,
        "collected_via": options["collected_via"],
        "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(context.now_s)),
        "duration_ms": 0.0,
        "cpu_ms": 0.0,
        "as_root": os.geteuid() == 0,
        "gather_subset": [clean_text(name, 64) for name in options["gather_subset"]][:64],
        "recorded": bool(not context.root.is_live or options["nvml_recording"]),
        "cut": [],
    }


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """DEFAULTS with the given options. Raises ValueError naming the option, what was found and what
    is allowed."""
    unknown = sorted(set(options) - set(DEFAULTS))
    if unknown:
        raise ValueError(f"unknown option {', '.join(unknown)}; options are {', '.join(DEFAULTS)}")
    checked = dict(DEFAULTS)
    checked.update({name: value for name, value in options.items() if value is not None})
    for name, allowed in CHOICES.items():
        if checked[name] not in allowed:
            raise ValueError(
                f"{name} must be one of {', '.join(map(str, allowed))}, and is {checked[name]!r}"
            )
    for name in ("silence_s", "deadline_s", "first_handle_s"):
        value = checked[name]
        if value is not None and not (isinstance(value, (int, float)) and 0 < value <= 3600):
            raise ValueError(
                f"{name} must be a number of seconds above 0 and up to 3600, and is {value!r}"
            )
    return checked


def _refuse_missing_folders(named: Iterable[tuple[str, str | None]], wait_s: float) -> None:
    """Raises ValueError for a folder that does not exist: everything that is read there would be
    reported as absent from the node. named: (option, path).

    A folder that cannot be examined, or not within wait_s because its file server does not answer,
    is not refused: the sections report it.
    """
    asked = [(option, path) for option, path in named if path and path != "/"]
    faults: list[str] = []

    def look() -> None:
        faults.extend(
            f"{option} must be a folder, and {path} is {found}"
            for option, path in asked
            for found in [_not_a_folder(path)]
            if found
        )

    if asked:
        import threading  # only where folders are named: reading the live node pays nothing for it

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(wait_s)
    if faults:
        raise ValueError(faults[0])


def _not_a_folder(path: str) -> str | None:
    """What a path leads to instead of a folder; None for a folder, and for a path that may not be
    examined."""
    try:
        return None if stat.S_ISDIR(os.stat(path).st_mode) else "a file"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return None


def choose_sections(subset: Iterable[str]) -> frozenset[str]:
    """The frozenset of sections that a gather_subset names, read as setup reads it: names add,
    "!name" takes away, `all` is every section, `min` (node, kernel) is always read unless "!min" is
    given, and with nothing but exclusions everything else is read. A section that is both named and
    excluded is read. Raises ValueError on an unknown name."""
    added, excluded, named = set(), set(), set()
    for entry in subset or ["all"]:
        name = entry[1:] if entry.startswith("!") else entry
        if name not in SECTIONS and name not in ("all", "min"):
            raise ValueError(
                f"gather_subset has {entry!r}; allowed are all, min, {', '.join(SECTIONS)}, each"
                " also with a leading !"
            )
        group = {"all": set(SECTIONS), "min": set(MINIMUM)}.get(name, {name})
        if entry.startswith("!"):
            excluded |= group - (set(MINIMUM) if name == "all" else set())
        else:
            added |= group
            named |= group if name not in ("all", "min") else set()
    if not added:
        added = set(SECTIONS)
    return frozenset((added | set(MINIMUM)) - (excluded - named))


def _section(name: str, chosen: list[Source], answers: list[SourceResult]) -> dict[str, Any]:
    own, others, adds = None, [], {}
    for index, (source, _, sections, extra) in enumerate(chosen):
        if name in sections:
            own = answers[index]
        elif name in extra:
            others.append(answers[index])
            adds[source] = extra[name]
    return merge_section(name, own, others, adds)


def _report_survivors(
    sections: dict[str, dict[str, Any]], chosen: list[Source], answers: list[SourceResult]
) -> None:
    """Reports a child that survived SIGKILL in the sections that it read."""
    for index, answer in enumerate(answers):
        for name in chosen[index][2]:
            probe = sections.get(name, {}).get("probe", {})
            if answer.survivor and answer.survivor not in (probe.get("error") or ""):
                probe["error"] = "; ".join(filter(None, [probe.get("error"), answer.survivor]))


def _cpu_s() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
