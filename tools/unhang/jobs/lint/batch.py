"""Reads scripts and batch scripts as launches, and checks their directives. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches

from unhang.jobs.lint.knowledge import Findings, row_of
from unhang.jobs.lint.launch import (
    OF_TASKS,
    Launch,
    Options,
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


def read_batch(
    text: str, beside: Callable[[str], str] = lambda _name: ""
) -> tuple[Place, list[Launch]]:
    """A script with its directives: where it runs, and its launches, those of shells in its words
    too. beside: as in Place."""
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
    per_node = number(gpus_asked(options)) or divided(gpus, nodes) or times(per_task, each)
    # deepspeed reads /job/hostfile if none is named
    spreads = "hostfile" in script.words or any(
        row_of("launchers", one).get("kind") in ("step", "everywhere") for one in script.words
    )
    whole, of_gpu, of_cpu = (
        bytes_of(options.get(name), "m") for name in ("mem", "mem_per_gpu", "mem_per_cpu")
    )
    here = each or divided(tasks, nodes)
    cpus = times(number(options.get("cpus_per_task")) or ONE, here)
    memory = whole or times(of_gpu, per_node) or times(of_cpu, cpus)
    place = Place(
        nodes,
        here,
        per_node,
        gpus or times(nodes, per_node),
        spreads=spreads,
        row="slurm" if options else "any",
        memory=memory,
        beside=beside,
        text=text,
        asked=options,
        hostfiles=script.written,
        alone=not options and not _OTHERS.search(text),
        forwards=bool(options),  # srun starts the daemons of MPI, with all variables
    )
    return place, [*launches_of(script, place)]


def check_directives(asked: Options, text: str) -> Findings:
    """Lines that are nearly #SBATCH, which Slurm takes for comments, and a late interpreter."""
    if not asked:
        return
    lines = [placed(line, number_) for number_, line in enumerate(text.splitlines(), 1)]
    late = next((line for line in lines[:20] if line.startswith("#!")), None)
    if late and late.line > 1:
        yield fault("late_interpreter", late)
    for line in lines:
        found = _DIRECTIVE.match(line)
        word = found["word"] if found else ""
        if word != "SBATCH" and get_close_matches(word, ["SBATCH"], cutoff=0.8):
            yield fault("near_directive", line, word=word)
