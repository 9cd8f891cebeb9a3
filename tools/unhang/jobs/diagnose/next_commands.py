"""What to run next if the log does not decide: three commands or questions at most, each with what its outcome decides.

First what the conclusion itself asks for, then the command that tells most of the causes with evidence apart, then what fits the circumstances.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from unhang import catalogue
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.ranking import Cause
from unhang.jobs.diagnose.rules.recording_rules import common_place

MOST_COMMANDS = 3
MOST_OF_CAUSES = 1  # commands of the causes' own lists, so that places are left for the circumstances
LEAST_BELIEF = 0.03  # minimum weight of a listed cause
OUTPUT_OF = {  # facts that show that the output of a command is among the inputs, in the number that is needed -> beginning of the command
    ("driver_version", 1): "cat /proc/driver/nvidia/version",
    ("topology", 1): "nvidia-smi topo",
    ("ib_adapter", 1): "ibstat",
}
BETWEEN_GPUS = ("the same job with NCCL_P2P_DISABLE", "the same start with NCCL_P2P_DISABLE")
# Causes that the experiment without peer-to-peer tells apart.
OF_PATHS = (
    "acs_iommu",
    "driver_p2p_bug",
    "driver_gsp_bug",
    "unsupported_p2p_geforce",
    "nccl_bug",
    "nvlink_down",
    "xid_hardware",
    "shm_too_small",
    "cumem_host_numa",
)
# Causes in the state of one machine, which one command shows. Where all named causes are such, or within the program, nothing is asked about connections.
OF_A_MACHINE = (
    "container_gpu_access",
    "cuda_driver_too_old",
    "disk_full",
    "gpu_not_in_build",
    "kernel_module_not_loaded",
    "orphan_processes_hold_gpu",
    "rank_device_mapping",
    "shm_leftovers",
    "shm_permission",
    "shm_too_small",
    "version_mismatch_driver_library",
)
WITHIN = (*OF_A_MACHINE, "oom", "rank_desync_app")
OF_CONNECTIONS = ("nc -vz", "ip -br addr", "all_reduce_perf")
# What a command asks for, by the first of these words in it: one command for each is enough.
ASKED_ABOUT = (
    "py-spy",
    "enforce-eager",
    "enforce_eager",
    "disable-cuda-graph",
    "disable_cuda_graph",
    "cuda_graph_config",
    "eager-mode",
    "custom-all-reduce",
    "NCCL_DEBUG_SUBSYS=TUNING",
    "with one process",
    "the step at which each stands",
    "TF_CONFIG",
    "NCCL_P2P_DISABLE",
    "all_reduce_perf",
    "NCCL_DEBUG",
    "TORCH_DISTRIBUTED_DEBUG",
    "dmesg",
    "ray status",
    "nc -vz",
    "iostat",
    "environ",
    "ss -tlnp",
    "kubectl get pod",
    "scontrol show job",
)
ALIKE = {"the flight recorder's": "py-spy"}  # both show where each rank stands
LATER = 0.6  # factor for each further command in a cause's own list
SECOND = 0.25  # remaining weight of a cause after a command that would prove it


class Step(NamedTuple):
    """run: a command or a question. text: the same with what its outcome decides between, where that is known."""

    run: str
    text: str


def commands_with_output(facts: Facts) -> list[str]:
    """Beginnings of commands whose output is among the inputs, or that decide nothing where all stacks stand outside of collectives."""
    given = [command for (fact, number), command in OUTPUT_OF.items() if len(facts.of(fact)) >= number]
    return given + (["the flight recorder's"] if facts.flights else []) + ([*BETWEEN_GPUS] if common_place(facts) else [])


def pointless(causes: Collection[Cause]) -> list[str]:
    """Beginnings of experiments, and what is asked about, that can tell nothing where these causes, all above a remark, have evidence."""
    paths = [*BETWEEN_GPUS] if causes and not any(cause.id in OF_PATHS for cause in causes) else []
    return paths + ([*OF_CONNECTIONS] if causes and all(cause.id in WITHIN for cause in causes) else [])


def what_to_run_next(
    causes: Sequence[Cause], rows: Mapping[str, Mapping[str, Any]], told: Collection[str], *, first: Sequence[str] = (), given: Sequence[str] = ()
) -> list[str]:
    """The commands, most informative first. causes: those above a remark, else the remarks; rows: the catalogue's; told: the circumstances; first: what the
    conclusion asks for; given: beginnings of commands whose output was read, or that nobody here can run.
    """
    needless = (*given, *answered(told))
    steps = [step for step in steps_for(told) if not _is_needless(step.run, needless)]
    of_causes = [Step(one, one) for one in _of_causes(causes, rows) if not _is_needless(one, needless)][:MOST_OF_CAUSES]
    chosen: dict[str, str] = {}
    shown = _with_what_they_tell(of_causes, steps)
    at_once = shown if causes and all(cause.id in OF_A_MACHINE and cause.severity != "info" for cause in causes) else []
    for step in (*(Step(one, one) for one in first), *at_once, *steps[:1], *shown, *steps[1:]):
        chosen.setdefault(asked_about(step.run), step.text)
    return list(chosen.values())[:MOST_COMMANDS]


def steps_for(told: Collection[str]) -> list[Step]:
    """The rows of `next_steps` that fit, special ones first."""
    rows = catalogue.table("next_steps").values()
    fitting = [row for row in rows if set(row["when"]) <= set(told) and not set(row["unless"]) & set(told)]
    return [Step(row["run"], f"{row['run']}: {row['tells']}") for row in fitting]


def answered(told: Collection[str]) -> list[str]:
    """What commands ask about and the report has answered already."""
    rows = catalogue.table("answered_questions").values()
    return [word for row in rows if set(row["when"]) <= set(told) and not set(row["unless"]) & set(told) for word in row["asked"]]


def _is_needless(command: str, needless: Sequence[str]) -> bool:
    """needless: beginnings of commands, or what they ask about."""
    return command.startswith(tuple(needless)) or asked_about(command) in needless


def _of_causes(causes: Sequence[Cause], rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The commands of the causes' lists; each next one is that which separates most of the remaining belief."""
    beliefs = {cause.id: max(cause.score, LEAST_BELIEF) for cause in causes}
    tells: dict[str, dict[str, float]] = {}
    for cause in beliefs:
        for place, command in enumerate(rows[cause]["collect"]):
            tells.setdefault(command, {})[cause] = LATER**place
    chosen: list[str] = []
    while rest := [one for one in tells if one not in chosen]:
        best = max(rest, key=lambda one: sum(beliefs[cause] * share for cause, share in tells[one].items()))
        chosen.append(best)
        for cause in tells[best]:
            beliefs[cause] *= SECOND
    return chosen


def _with_what_they_tell(commands: Iterable[Step], steps: Sequence[Step]) -> list[Step]:
    """The commands; where a fitting step asks for the same, that one, because it says what its outcome decides."""
    return [next((step for step in steps if asked_about(step.run) == asked_about(one.run)), one) for one in commands]


def asked_about(command: str) -> str:
    """What a command asks for: the first known word in it, or the command itself."""
    if known := next((word for begin, word in ALIKE.items() if command.startswith(begin)), None):
        return known
    return min((word for word in ASKED_ABOUT if word in command), key=command.index, default=command)
