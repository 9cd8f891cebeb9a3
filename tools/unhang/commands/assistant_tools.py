"""The tools of `unhang mcp`: what an assistant may ask, and the command line that answers it.
Values in, values out, but for the paths, which are looked at."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.path_arguments import irregular
from unhang.core.schemas.check import check_schema
from unhang.jobs.lint.settings import KINDS

MOST_FILES, LONGEST_TEXT = 64, 1 << 20
KERNELS_OWN = ("/proc", "/sys", "/dev")  # no logs; reading may wait, or have an effect


@dataclass(frozen=True)
class Tool:
    """asks: JSON Schema of its arguments; options: argument -> option of the command."""

    name: str
    title: str
    description: str
    asks: dict[str, Any]
    options: Mapping[str, str]


@dataclass(frozen=True)
class Request:
    """argv: of `unhang`; text: what it reads on standard input."""

    tool: str
    argv: tuple[str, ...]
    text: str = ""


def _text(description: str, pattern: str | None = None, longest: int = 200) -> dict[str, Any]:
    row = {"type": "string", "minLength": 1, "maxLength": longest, "description": description}
    return row | ({"pattern": pattern} if pattern else {})


def _files(description: str) -> dict[str, Any]:
    items = {"type": "string", "minLength": 1, "maxLength": 4096}
    return {
        "type": "array",
        "items": items,
        "minItems": 1,
        "maxItems": MOST_FILES,
        "description": description,
    }


def _asks(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


VERSION = r"^[0-9][0-9a-z.+-]*$"
NAMES = r"^[\w.,*?\[\]:-]+$"  # no @, which names a file or a group of hosts
TOOLS = {
    one.name: one
    for one in (
        Tool(
            "diagnose",
            "Why a job hung, failed or is slow",
            "Reads logs of a training job (NCCL, torch, kernel, Slurm, flight recordings, bundles"
            " of unhang inspect) and returns the most probable causes with the lines that show"
            " them. Give files, or the text itself; scripts of the job beside its log help.",
            _asks(
                files=_files("logs, folders of logs, bundles, scripts of the job"),
                text=_text("a log as text, if it is in no file", longest=LONGEST_TEXT),
                with_audit={
                    "type": "boolean",
                    "description": "also count what the last audit found on the log's hosts",
                },
            ),
            {},
        ),
        Tool(
            "inspect",
            "Which rank of a running job all others wait for",
            "Looks at a job that runs on this machine, from outside, and returns which rank all"
            " others wait for, where it is and why. Nothing is started in the job or changed.",
            _asks(
                pid={"type": "integer", "minimum": 1, "description": "a process of the job"},
                evidence=_files("documents of unhang-inspect.pyz, instead of a look"),
            ),
            {"pid": "--pid"},
        ),
        Tool(
            "explain",
            "What is known about a rule, Xid, variable, version or GPU",
            "Describes one name with sources: xid 79, NCCL_P2P_LEVEL, driver 535.154.05, nccl"
            " 2.21.5, H100, a rule's or cause's id, or an error's text. Ask it before you"
            " recommend a setting.",
            _asks(name=_text("the name, or an error's text", longest=1000))
            | {"required": ["name"]},
            {},
        ),
        Tool(
            "audit",
            "What the last audit of the nodes found",
            "Returns the findings of the last `unhang audit` on this machine, worst first, with"
            " expected and found values, remedies and sources. It reads no node: look at the date.",
            _asks(
                hosts=_text("only these nodes, for example gpu[001-016]", NAMES, 2000),
                rule=_text("only this rule", NAMES),
                severity=_text("only these severities", "^[a-z,]+$"),
            ),
            {},
        ),
        Tool(
            "lint",
            "Settings that cause hangs, before a job runs",
            "Checks job scripts, Slurm batch files, Dockerfiles, Kubernetes YAML and Python for"
            " settings of NCCL and torch that do nothing, do harm or hide a fault. Give files, or"
            " a text that you have just written. It writes no fix.",
            _asks(
                files=_files("scripts, configuration files, folders"),
                text=_text("a script as text, if it is in no file", longest=LONGEST_TEXT),
                kind={"enum": list(KINDS), "description": "what the text is"},
                nccl=_text("the job's NCCL version", VERSION, 40),
                torch=_text("the job's PyTorch version", VERSION, 40),
            ),
            {"kind": "--kind", "nccl": "--nccl", "torch": "--torch"},
        ),
    )
}
READ_TEXT = ("diagnose", "lint")  # they take files or a text


def request_of(name: str, given: Mapping[str, Any], within: Sequence[Path]) -> Request:
    """The command that answers a tool's call. within: folders that may be read, all if there is
    none. Raises UserError."""
    tool = TOOLS.get(name)
    if tool is None:
        raise UserError(f"{name!r} is not one of {', '.join(TOOLS)}")
    if faults := list(check_schema(dict(given), tool.asks)):
        place = ".".join(map(str, faults[0].path)) or "arguments"
        raise UserError(f"{name}: {place}: {faults[0].message}")
    if name in READ_TEXT and ("files" in given) is ("text" in given):
        raise UserError(
            f"{name} takes either files or text, and was given {'both' if given else 'neither'}"
        )
    options = [f"{option}={given[one]}" for one, option in tool.options.items() if one in given]
    named = [readable_path(one, within) for one in given.get("files", given.get("evidence", ()))]
    return Request(name, tuple(_argv(name, given, options, named)), given.get("text", ""))


def _argv(
    name: str, given: Mapping[str, Any], options: Sequence[str], paths: Sequence[str]
) -> Sequence[str]:
    """Paths are absolute, so that none is an option."""
    if name == "explain":
        return ["explain", "-o", "json", "--", *given["name"].split()]
    if name == "inspect":
        return ["inspect", "-o", "evidence", *options, *(["--evidence", *paths] if paths else [])]
    if name == "diagnose" and given.get("with_audit"):
        options = [*options, "--run", "latest"]
    form = "evidence" if name == "diagnose" else "json"
    return [name, "-o", form, *options, *(paths or ["-"] if name in READ_TEXT else [])]


def readable_path(given: str, within: Sequence[Path]) -> str:
    """The path without links, of a regular file or a folder that this user may read. Raises
    UserError."""
    try:
        path = Path(given).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise UserError(f"nothing is at {given}, which must be a file or a folder") from None
    if kind := irregular(path):
        raise UserError(f"{given} is {kind}, not a file or a folder")
    if any(path.is_relative_to(one) for one in KERNELS_OWN):
        raise UserError(f"{given} is one of the kernel's own files, which are not read")
    if within and not any(path.is_relative_to(one) for one in within):
        folders = ", ".join(map(str, within))
        raise UserError(f"{given} is not in {folders} (--within)")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise UserError(f"{given} may not be read")
    return str(path)
