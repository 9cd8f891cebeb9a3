"""unhang-inspect.pyz: looks at the jobs of this node and prints the evidence as one JSON document,
for nodes and pods without unhang."""

from __future__ import annotations

import sys

from ..base.document import clean_text, encode
from ..base.program import load_nvidia_ml_py, open_standard_descriptors
from .look import look
from .look_options import add_look_options, chosen_look_options
from .samples import write_samples

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(arguments: list[str]) -> int:
    """0 with a document on stdout, 2 with one line on stderr."""
    open_standard_descriptors()
    import argparse

    parser = argparse.ArgumentParser(
        prog="unhang-inspect",
        description=(
            "Reads what a running training job shows from outside: one JSON document on stdout."
            " Changes nothing, loads nothing into the job."
        ),
        epilog="The verdict: unhang inspect --evidence DOCUMENT…",
    )
    add_look_options(parser)
    parser.add_argument(
        "--sample",
        type=float,
        metavar="S",
        help=(
            "instead of a look: a sample of the job each S seconds, as lines of JSON, until it is"
            " ended"
        ),
    )
    parsed = parser.parse_args(arguments)
    if parsed.sample:
        return write_samples(
            {"pids": parsed.pid, "slurm_job": parsed.slurm_job, "container": parsed.container},
            max(0.2, parsed.sample),
        )
    return write_evidence(chosen_look_options(parsed))


def write_evidence(options: dict[str, Any]) -> int:
    """Looks, and writes one line of JSON to stdout."""
    try:
        sys.stdout.write(encode(look(options, load_nvidia_ml_py)) + "\n")
        sys.stdout.flush()
    except ValueError as problem:
        sys.stderr.write(f"unhang-inspect: {clean_text(str(problem))}\n")
        return 2
    except OSError as problem:
        sys.stderr.write(f"unhang-inspect: could not write the document: {problem.strerror}\n")
        return 2
    return 0
