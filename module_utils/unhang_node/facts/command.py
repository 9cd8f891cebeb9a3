"""The collector as a command: options in, one JSON document on stdout. Shared by unhang-collect.pyz
and `unhang collect`; Ansible does not pack it."""

from __future__ import annotations

import os
import sys

from ..base.document import clean_text, encode
from ..base.program import load_nvidia_ml_py, open_standard_descriptors
from .collect import collect

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

# name, kind, help, as in library/gpu_node_info.py. Kinds: text, list (comma-separated or repeated),
# flag, seconds, or a tuple of choices.
OPTIONS = (
    ("gather_subset", "list", "sections to read, as with Ansible's setup: all, min, names, !names"),
    ("rootfs", "list", "folders to read as the node's /; the first one that has a path wins"),
    ("procfs", "text", "folder to read as /proc"),
    ("sysfs", "text", "folder to read as /sys"),
    ("kernel_log", "text", "a file to read instead of the kernel's log"),
    ("nvml_recording", "text", "a recording of driver answers to read instead of the driver"),
    (
        "torch_environments",
        "list",
        "Python environments in which to read the version of torch, from files",
    ),
    ("nccl_roots", "list", "additional folders to search for libnccl"),
    ("hash_libraries", "flag", "report SHA-256 sums of NCCL libraries (140 ms for 250 MB)"),
    ("p2p_matrix", ("read", "full"), "queries for each pair of GPUs"),
    ("silence_s", "seconds", "seconds that a single call may take (default 4)"),
    ("deadline_s", "seconds", "seconds that one source may take in total (default 15)"),
    ("first_handle_s", "seconds", "seconds that the driver may take for its first answers"),
)


def main(arguments: list[str]) -> int:
    """Exit code of unhang-collect: 0 with a document on stdout, 2 and one line on stderr."""
    open_standard_descriptors()
    if not arguments:  # argparse costs 10 ms
        return write_document({"collected_via": "file"})
    import argparse

    parser = argparse.ArgumentParser(
        prog="unhang-collect",
        description=(
            "Reads what matters for multi-GPU training from this node; one JSON document on stdout."
            " Changes nothing."
        ),
    )
    add_options(parser)
    return write_document(dict(chosen_options(parser.parse_args(arguments)), collected_via="file"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the collector's options to an argparse parser."""
    for name, kind, text in OPTIONS:
        flag = "--" + name.replace("_", "-")
        if kind == "flag":
            parser.add_argument(flag, action="store_true", default=None, help=text)
        elif kind == "list":
            parser.add_argument(flag, action="append", metavar="A,B", help=text)
        elif isinstance(kind, tuple):
            parser.add_argument(flag, choices=kind, help=text)
        else:
            parser.add_argument(
                flag,
                type=float if kind == "seconds" else str,
                metavar="S" if kind == "seconds" else "PATH",
                help=text,
            )


def chosen_options(parsed: argparse.Namespace) -> dict[str, Any]:
    """{option: value} of the options that the command line sets."""
    chosen = {}
    for name, kind, _ in OPTIONS:
        value = getattr(parsed, name)
        if value is not None:
            chosen[name] = (
                [part for entry in value for part in entry.split(",") if part]
                if kind == "list"
                else value
            )
    return chosen


def write_document(options: dict[str, Any], load_pynvml: Callable[[], Any] | None = None) -> int:
    """Collects and writes one line of JSON to stdout. Returns 0, or 2 with one line on stderr."""
    open_standard_descriptors()
    if sys.stdout is None:
        sys.stderr.write(
            "unhang collect: could not write the document: standard output is closed\n"
        )
        return 2
    try:
        text = encode(collect(options, load_pynvml or load_nvidia_ml_py)) + "\n"
    except ValueError as problem:
        sys.stderr.write(f"unhang collect: {clean_text(str(problem))}\n")
        return 2
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as problem:
        # so that the interpreter prints no second error when it flushes stdout at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stderr.write(f"unhang collect: could not write the document: {problem.strerror}\n")
        return 2
    return 0
