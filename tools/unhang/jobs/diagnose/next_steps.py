"""What to run next if the log does not decide: four commands or questions at most, each with its
outcomes; two beside causes, which have checks of their own.

First what the conclusion itself asks for, then the row of the catalogue's table `error_words` for
the words of a failure whose message no signature knows, then the rows of the table `next_steps`
that fit the circumstances, one for each thing that is asked for. Circumstances say where a job
stood, how large it is, what started it and on which accelerators; they name no cause.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from unhang.core import catalogue
from unhang.jobs.diagnose.fitting_remedies import (
    experiments_made,
    frameworks,
    launchers,
    other_accelerator,
    serves,
)
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.logs.stacks import MAIN
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.meaning.conclusion import Conclusion
from unhang.jobs.diagnose.meaning.rules.stack_rules import common_place
from unhang.jobs.diagnose.meaning.signs import (
    hang_signs,
    is_slow,
    own_errors,
    speed_falls,
    unfinished_traceback,
)

MOST_COMMANDS = 4
MOST_BESIDE_CAUSES = 2
# facts that show that the output of a command is among the inputs, in the number that is needed ->
# beginning of the command
OUTPUT_OF = {
    ("driver_version", 1): "cat /proc/driver/nvidia/version",
    ("topology", 1): "nvidia-smi topo",
    ("ib_adapter", 1): "ibstat",
}
STACKS = "stacks"
BETWEEN_GPUS = ("the same job with NCCL_P2P_DISABLE", "the same start with NCCL_P2P_DISABLE")
# What rows ask for -> circumstances in which it has been answered, or cannot be.
ANSWERED_BY = {STACKS: {"stacks-given", "ended"}, "nccl": {"nccl-log-given"}}
# Circumstances for which `next_steps` has rows of their own about the failed line.
SPECIAL = frozenset(
    {
        "image-refused",
        "launch-failed",
        "import-failed",
        "program-missing",
        "command-missing",
        "file-missing",
        "actor-died",
        "killed",
    }
)
_PACKAGE = re.compile(r"(?:site|dist)-packages/(?P<name>[A-Za-z]\w{1,40})")
# circumstance -> facts any of which shows it
SHOWN_BY = {
    "ended-by-slurm": ("slurm_ended",),
    "killed": ("killed",),
    "error-line": ("error_line",),
    "crashed": ("crash", "aborted"),
    "local-peer-closed": ("local_peer_closed",),
    "gloo-wait": ("gloo_wait",),
    "gdrcopy": ("gdrcopy_missing",),
    "image-refused": ("image_refused",),
    "preparing": ("data_progress",),
    "building": ("build_start",),
    "steps": ("training_step", "monitored"),
    "start": ("store_timeout", "init_start", "bootstrap", "test_device"),
    "rendezvous": ("store_timeout",),
    "launch-failed": ("launch_failed",),
    "started": ("test_device", "init_start", "bootstrap"),
    "met": ("init_complete",),
    "peer-gone": ("peer_gone",),
    "actor-died": ("actor_died",),
    "container": ("container",),
    "stages": ("unbatched_message",),
    "forked": ("fork_warned",),
    "has-nccl-log": ("bootstrap", "init_start", "transport"),
    "native": ("bandwidth_row", "test_device"),
    "tests-run": ("bandwidth_row", "average_bandwidth", "test_device"),
    "served": ("server_stands", "server_serves"),
    "nccl-warned": ("nccl_warn_line",),
    "little-memory-left": ("memory_share_high",),
}
# where several are shown, the first one says where the job stood
PHASES = ("serving", "building", "steps", "preparing", "start")
LAUNCHERS_SHOWN = {"Slurm": "slurm", "Ray": "ray", "Kubernetes": "kubernetes"}
# circumstance -> how programs of signatures begin whose lines show it
PROGRAMS: dict[str, tuple[str, ...]] = {
    "vllm": ("vLLM",), "sglang": ("SGLang",), "trtllm": ("TensorRT-LLM",),
    "tensorflow": ("TensorFlow",),
    "mpi": ("Open MPI", "MPICH", "Hydra", "Intel MPI", "MPI"),
}  # fmt: skip
MAKERS = {"Huawei": "huawei", "AMD": "amd"}
CHANGING = (
    "NCCL_P2P",
    "NCCL_SHM",
    "NCCL_CUMEM",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NET",
    "NCCL_LAUNCH",
    "CUDA_LAUNCH",
    "NCCL_NVLS",
)  # change how ranks exchange data
CRASHED_BY = {  # circumstance -> words of the failure's line
    "import-failed": ("No module named ",),
    "program-missing": (
        "execve(): ",
        "executable file not found",
        "could not find the executable",
        "permission denied",
    ),
    "command-missing": (": command not found",),
    "arguments": (
        "unrecognized arguments",
        "the following arguments are required",
        "no such option",
        "unknown option",
        "unexpected argument",
    ),
    "file-missing": (
        "No such file or directory",
        "is not found, missing",
        "FileNotFoundError",
        "does not exist",
    ),
}
EXITS = ("root_cause", "failed_exit", "aborted")  # reports of a launcher that a process ended
EARLY_SEQ = 50  # a collective so early belongs to start-up


def commands_with_output(facts: Facts) -> list[str]:
    """Beginnings of commands whose output is among the inputs, or that decide nothing where all
    stacks stand outside of collectives."""
    given = [
        command for (fact, number), command in OUTPUT_OF.items() if len(facts.of(fact)) >= number
    ]
    return (
        given
        + (["the flight recorder's"] if facts.flights else [])
        + ([*BETWEEN_GPUS] if common_place(facts) else [])
    )


def what_to_run_next(
    told: Collection[str],
    *,
    first: Sequence[str] = (),
    error: Mapping[str, Any] | None = None,
    given: Sequence[str] = (),
    beside_causes: bool = False,
) -> list[str]:
    """The commands, each with a line for each outcome. told: the circumstances; first: what the
    conclusion asks for; error: the row of `error_words` for the line of a failure; given:
    beginnings of commands whose output was read, or that nobody here can run."""
    asked = {*([STACKS] if first else []), *([error.get("asks") or ""] if error else [])}
    rows = [row for row in rows_for(told, asked) if not row["run"].startswith(tuple(given))]
    if error:
        # what was changed is asked before what the error says
        rows.insert(1 if "changed" in told else 0, error)
    steps = ["\n".join([row["run"], *row["tells"]]) for row in rows]
    return [*first, *steps][: MOST_BESIDE_CAUSES if beside_causes else MOST_COMMANDS]


def rows_for(told: Collection[str], asked: Collection[str] = ()) -> list[Mapping[str, Any]]:
    """The rows of `next_steps` that fit the circumstances, one for each thing that they ask for.
    asked: what is asked for already."""
    seen = {*asked, *(asks for asks, answers in ANSWERED_BY.items() if answers & set(told))}
    found: list[Mapping[str, Any]] = []
    for row in catalogue.table("next_steps").values():
        if (
            row["asks"] not in seen
            and set(row["when"]) <= set(told)
            and not set(row["unless"]) & set(told)
        ):
            seen.add(row["asks"])
            found.append(row)
    return found


def circumstances(facts: Facts, outcome: str) -> frozenset[str]:
    """The circumstances that the log shows. outcome: the word of the conclusion."""
    shown = {
        name
        for name, facts_of in SHOWN_BY.items()
        if any(not event.quoted for one in facts_of for event in facts.of(one))
    }
    shown |= _programs(facts)
    shown -= {"rendezvous"} if "met" in shown else set()
    shown |= _surroundings(facts) | _state(facts, outcome, shown)
    phase = _phase(facts, shown)
    return frozenset(
        shown.difference(PHASES) | ({phase} if phase else {"silent"}) | _given(facts, shown)
    )


def _programs(facts: Facts) -> set[str]:
    """Launchers, schedulers, engines and frameworks with lines in the log."""
    programs = {event.signature.program for event in facts.events if not event.quoted}
    found = {
        name for name, start in PROGRAMS.items() if any(one.startswith(start) for one in programs)
    }
    found |= {LAUNCHERS_SHOWN[name] for name in launchers(facts) if name in LAUNCHERS_SHOWN}
    found |= {
        {"JAX": "jax", "PyTorch": "torch"}[name]
        for name in frameworks(facts)
        if name in ("JAX", "PyTorch")
    }
    return found | ({"serving"} if serves(facts) else set())


def _given(facts: Facts, shown: set[str]) -> set[str]:
    """What the input has already, so that it is not asked for: a log of NCCL, stacks, and processes
    of which none is left; and programs that are no torch."""
    debug = {
        (event.fields.get("value") or "").strip("\"'").upper()
        for event in facts.of("setting")
        if event.fields.get("name") == "NCCL_DEBUG"
    }
    found = {"nccl-log-given"} if debug & {"INFO", "TRACE"} or "has-nccl-log" in shown else set()
    found |= {"ended"} if shown & {"failed", "nccl-error"} else set()
    found |= {"stacks-given"} if len(facts.stacks.get(MAIN, ())) > 1 else set()
    return found | (
        {"no-torch"} if shown & {"jax", "tensorflow", "native"} and "torch" not in shown else set()
    )


def _phase(facts: Facts, shown: set[str]) -> str | None:
    """Where the job stood. A lone timeout says it by its number."""
    numbers = [one.seq for one in facts.timeouts if one.seq is not None]
    if numbers and not shown & {"serving", "preparing", "building"}:
        return "start" if min(numbers) <= EARLY_SEQ and "steps" not in shown else "steps"
    if any(
        (event.fields.get("value") or "").strip() not in ("", "0") for event in facts.of("bar")
    ) and not shown & {"preparing", "building"}:
        shown = shown | {"steps"}
    return next((one for one in PHASES if one in shown), None)


def _surroundings(facts: Facts) -> set[str]:
    """The size of the job, its accelerators, and what was tried."""
    several = len(facts.hosts) > 1 or any(
        int(event.fields["value"] or 1) > 1 for event in facts.of("nnodes")
    )
    maker = other_accelerator(facts)
    found = {
        "nodes" if several else "machine",
        MAKERS.get(maker, "other-accelerator") if maker else "nvidia",
    }
    if experiments_made(facts) or _goes_without_p2p(facts):
        found.add("p2p-tried")
    if any(str(event.fields.get("name")).startswith(CHANGING) for event in facts.of("setting")):
        found.add("settings")
    named = [event for event in facts.of("error_line") if "NCCL" in event.text and not event.quoted]
    if facts.of("library_failed") or (named and not hang_signs(facts)):
        found.add("nccl-error")
    if facts.has("nccl-internal-check"):
        found.add("nccl-internal")
    came = {one.rank for one in facts.timeouts if one.rank is not None}
    # all had come to the first barrier
    later = [
        event
        for event in facts.of("store_count")
        if int(event.fields.get("group") or 0) > 1 and not event.quoted
    ]
    if (came and len(came) < (facts.world_size or 0)) or later:
        found.add("missing")
    return found


def _goes_without_p2p(facts: Facts) -> bool:
    """Whether the log names the paths of NCCL's channels, and none is over peer-to-peer: then it
    changes nothing to switch that off."""
    paths = [
        event.fields.get("value") or event.fields.get("old") or ""
        for event in facts.of("transport")
    ]
    return bool(paths) and not any(path.startswith("P2P") for path in paths)


def _state(facts: Facts, outcome: str, shown: set[str]) -> set[str]:
    """Whether the job failed, is slow or hangs."""
    if "killed" in shown:
        return set()
    first = facts.first_error
    raised = facts.of("crash") or (first is not None and first.signature.kind == "error")
    if outcome == "failure" or (raised and not (hang_signs(facts) or is_slow(facts))):
        return {"failed", *_what_is_shown_of_it(facts)} | {
            name for name, words in CRASHED_BY.items() if _crashed_by(facts, words)
        }
    return {"slow", *(("fades",) if speed_falls(facts) else ())} if is_slow(facts) else {"hangs"}


def _what_is_shown_of_it(facts: Facts) -> set[str]:
    """How much of a failure's own output there is: a whole traceback, one that is cut, or a
    launcher's report alone."""
    raised, cut = facts.of("crash"), unfinished_traceback(facts) is not None
    if cut or raised:
        return {"cut-traceback"} if cut else {"whole-traceback"}
    return (
        {"only-exits"}
        if any(not event.quoted for name in EXITS for event in facts.of(name))
        and not own_errors(facts)
        else set()
    )


def _crashed_by(facts: Facts, words: tuple[str, ...]) -> bool:
    """Whether a line of a failure has one of these words."""
    return any(
        word in event.text
        for word in words
        for name in ("crash", "error_line")
        for event in facts.of(name)
        if not event.quoted
    )


@cache
def _rows() -> tuple[tuple[tuple[str, ...], str, Mapping[str, Any]], ...]:
    return tuple(
        (tuple(word.lower() for word in row["words"]), (row.get("beside") or "").lower(), row)
        for row in catalogue.table("error_words").values()
    )


def row_of(text: str) -> Mapping[str, Any] | None:
    """The first row of the table one of whose words is in the text, with the text that must be
    beside it."""
    lowered = text.lower()
    return next(
        (
            row
            for words, beside, row in _rows()
            if beside in lowered and any(word in lowered for word in words)
        ),
        None,
    )


def explained(facts: Facts, conclusion: Conclusion) -> tuple[Event, Mapping[str, Any]] | None:
    """(line, its row) for a conclusion without a cause: of a hang the line that it shows, if that
    reports an error; of a failure that line, or the first other one that reports an error."""
    shown, errors = conclusion.event, own_errors(facts)
    lines = [shown] if conclusion.word == "failure" or shown in errors else []
    lines += [facts.first_error, *errors] if conclusion.word == "failure" else []
    return next(
        ((line, row) for line in lines if isinstance(line, Event) and (row := row_of(line.text))),
        None,
    )


def library_of(facts: Facts) -> str | None:
    """The package whose code raised the first exception with a frame, such as "vllm"; None where no
    frame names one."""
    frames = [
        str(event.fields.get("raised_at") or "") for event in facts.of("crash") if not event.quoted
    ]
    return next((found["name"] for frame in frames if (found := _PACKAGE.search(frame))), None)


def with_library(steps: list[str], library: str | None) -> list[str]:
    """Steps that speak of the library that raised an error, with its name."""
    return (
        [
            step.replace(
                "the library that raised the error", f"{library}, whose code raised the error"
            )
            for step in steps
        ]
        if library
        else steps
    )
