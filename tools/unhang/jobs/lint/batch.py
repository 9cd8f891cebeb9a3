"""Reads scripts and batch scripts as launches, and checks their directives. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple

from unhang.core.catalogue.own_tables import table
from unhang.jobs.lint.knowledge import Findings
from unhang.jobs.lint.launch import (
    OF_TASKS,
    Launch,
    Place,
    divided,
    gpus_asked,
    launches_of,
    options_of,
    set_by_slurm,
    times,
)
from unhang.jobs.lint.launch_faults import fault
from unhang.jobs.lint.placed import ONE, Text, bytes_of, number, placed
from unhang.jobs.lint.shell import read_shell

_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus_per_task"}
_DIRECTIVE = re.compile(r"#(?P<word>[A-Z]{5,7})\s{1,8}(?P<options>-{1,2}[a-zA-Z].{0,400})")
_OTHERS = re.compile(r"^#(?:PBS|BSUB|\$|COBALT)\s", re.MULTILINE)


class Batch(NamedTuple):
    """place: where its commands are run."""

    place: Place
    launches: list[Launch]


def read_batch(text: str, beside: Callable[[str], str] = lambda _name: "") -> Batch:
    """A script with its directives and its launches, those of shells in its words too. beside: as
    in Place."""
    options = dict[str, Text]()
    for line, raw in enumerate(text.splitlines(), 1):
        if (found := _DIRECTIVE.match(raw)) and found["word"] == "SBATCH":
            words = found["options"].partition(" #")[0].split()
            read = options_of([placed(one.strip("\"'"), line) for one in words]).items()
            options |= {_SHORT.get(name, name): one for name, one in read}
    held = set_by_slurm(options)
    # the batch script itself is on the first node
    first = {name: [placed("0", 0)] for name in OF_TASKS}
    if asked := options.get("export"):
        first["SLURM_EXPORT_ENV"] = [asked]
    script = read_shell(text, {**held, **(first if options else {})})
    nodes, tasks, each, gpus, per_task = (
        number(options.get(one))
        for one in ("nodes", "ntasks", "ntasks_per_node", "gpus", "gpus_per_task")
    )
    asked = options.get("gpus_per_node") or options.get("gres")
    per_node = number(placed(gpus_asked(options), asked)) if asked else None
    per_node = per_node or divided(gpus, nodes) or times(per_task, each)
    spreading = {name for name, row in table("launchers").items() if row["kind"] in _SPREADING}
    spreading |= {"hostfile"}  # of /job, which deepspeed reads if none is named
    memory = bytes_of(options.get("mem"), "m") or times(
        bytes_of(options.get("mem_per_gpu"), "m"), per_node
    )
    each_cpu = bytes_of(options.get("mem_per_cpu"), "m")
    per_task_cpus = number(options.get("cpus_per_task")) or ONE
    here = each or divided(tasks, nodes)
    memory = memory or times(times(each_cpu, per_task_cpus), here)
    kind = "slurm" if options else "other" if _OTHERS.search(text) else "shell"
    place = Place(
        kind,
        nodes,
        here,
        per_node,
        gpus or times(nodes, per_node),
        spreads=not spreading.isdisjoint(script.words),
        row="slurm" if options else "any",
        memory=memory,
        beside=beside,
        text=text,
        asked=options,
        hostfiles=script.written,
    )
    return Batch(place, list(launches_of(script, place)))


_SPREADING = ("step", "everywhere")


def check_directives(batch: Batch, text: str) -> Findings:
    """Lines that are nearly #SBATCH, which Slurm takes for comments, and a late interpreter."""
    lines = [placed(line, number_) for number_, line in enumerate(text.splitlines(), 1)]
    late = next((line for line in lines[:20] if line.startswith("#!")), None)
    if batch.place.asked and late and late.line > 1:
        yield fault("late_interpreter", late)
    for line in lines if batch.place.asked else ():
        found = _DIRECTIVE.match(line)
        word = found["word"] if found else ""
        if word != "SBATCH" and get_close_matches(word, ["SBATCH"], cutoff=0.8):
            yield fault("near_directive", line, word=word)
