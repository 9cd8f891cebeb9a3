"""The options of a look, as `unhang inspect` and unhang-inspect.pyz have them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

# sources of a look, in the order of SOURCES in look.py
NAMES = ("nvml", "ras", "proc", "stacks", "sockets", "log_tail", "kernel_log", "locks")
MOST_SECONDS = 600


def add_look_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a look."""
    parser.add_argument(
        "--pid",
        type=process_number,
        action="append",
        default=[],
        metavar="PID",
        help="a process of the job: a rank, its launcher or a shell around it",
    )
    parser.add_argument("--slurm-job", metavar="ID", help="a job of Slurm")
    container = (
        "a container of this machine, looked at from outside (docker, podman, containerd,"
        " apptainer, enroot; pid:[N], a namespace of lsns)"
    )
    parser.add_argument("--container", metavar="NAME|ID", help=container)
    parser.add_argument(
        "--gap", type=_seconds, metavar="S", help="seconds between the two looks (default 3)"
    )
    parser.add_argument(
        "--slow",
        action="store_true",
        help="the job runs, but slowly: name the slow rank, by 50 looks in ten seconds",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=NAMES,
        help="a source that is not to be asked",
    )
    parser.add_argument("--py-spy", metavar="PATH", help="py-spy, where it is not on PATH")
    parser.add_argument(
        "--kernel-log", metavar="FILE", help="a file to read instead of the kernel's log"
    )


def process_number(given: str) -> int:
    """A value of --pid. Raises argparse's error, which names the option."""
    import argparse

    if not (given.isascii() and given.isdigit() and int(given)):
        raise argparse.ArgumentTypeError(f"{given!r} is not the number of a process")
    return int(given)


def _seconds(given: str) -> float:
    import argparse

    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{given!r} is not a number of seconds, more than 0 and up to {MOST_SECONDS}"
        )
    return seconds


def chosen_look_options(parsed: argparse.Namespace) -> dict[str, Any]:
    """Options of look()."""
    return {
        "pids": parsed.pid,
        "slurm_job": parsed.slurm_job,
        "container": parsed.container,
        "gap_s": parsed.gap,
        "slow": parsed.slow,
        "without": parsed.without,
        "py_spy": parsed.py_spy,
        "kernel_log": parsed.kernel_log,
    }
