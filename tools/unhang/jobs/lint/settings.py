"""Finds the settings in a file, each with its line, by the kind of file. Text in, values out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.jobs.job_files import DEEPSPEED
from unhang.jobs.lint.hcl_nodes import documents_of
from unhang.jobs.lint.knowledge import matching
from unhang.jobs.lint.placed import Text, placed
from unhang.jobs.lint.python_names import last_name, of_kind, parse_python
from unhang.jobs.lint.shell import EXPANSION, read_shell
from unhang.jobs.lint.yaml_nodes import Map, parts_of
from unhang_node.facts.parse.nccl_conf import parse_nccl_conf

KINDS = ("shell", "slurm", "docker", "kubernetes", "nomad", "systemd", "nccl_conf", "python")
OF_CONTAINERS = ("kubernetes", "nomad")
_NAMED = re.compile(r"CL_|GLOO_")
_MISSPELT = re.compile(r"(?:NCC|NCL|NCLL|NCCCL|NNCL|NCLC|CNCL)_(?=[A-Z])")
_WANTED = re.compile(
    r"TORCH_FR_|TORCH_NCCL_|(?i:NCCL_)|ENABLE_NCCL_|GLOO_SOCKET_IFNAME$|TORCH_DISTRIBUTED_DEBUG$|CUDA_LAUNCH_BLOCKING$|RDMAV_FORK_SAFE$"
)
_PAIR = re.compile(r"(?P<name>\w{3,100})=(?P<value>[^\n]{0,400})")
_DIRECTIVES = re.compile(r"^#(SBATCH|PBS|BSUB)\b", re.MULTILINE)
_OF_FILES = {
    "docker": re.compile(r"^[ \t]*(?P<word>ENV|RUN)[ \t]+(?P<rest>.*)", re.MULTILINE),
    "systemd": re.compile(
        r"^(?:[ \t]*(?P<word>(?:Default)?Environment)[ \t]*=(?P<rest>(?:.*\\\n)*.*)|.*)$",
        re.MULTILINE,
    ),
}
_QUOTED = re.compile(r"""(["'])(\w+)=""")
_ENV_OLD = re.compile(r"([A-Za-z_]\w*)[ \t]+([^=\s]\S*)$")
DEEPEST = 3  # scripts in scripts
IGNORED = re.compile(r"#\s{0,4}unhang:\s{0,4}ignore\b")


@dataclass(frozen=True)
class Setting:
    """NAME=value at a line. value None: unset, or computed and unknown. lasting: it applies to more
    than one command. odd: the row of `conf_faults` that it has. own: a variable of the script
    itself, which uses it as $NAME and does not export it. local: the script neither exports nor
    uses it."""

    name: str
    value: str | None
    line: int
    lasting: bool = True
    odd: str | None = None
    unset: bool = False
    own: bool = False
    local: bool = False


def kind_of(name: str, text: str) -> str:
    """The kind of a file, by its name and its first lines."""
    base = PurePath(name).name.lower()
    return next(
        (
            row["kind"]
            for row in table("file_kinds").values()
            if re.search(row["name"], base) or re.search(row["text"], text)
        ),
        "shell",
    )


def wanted(name: str) -> bool:
    """Whether lint checks this variable."""
    return (_WANTED.match(name) or _MISSPELT.match(name)) is not None


def find_settings(text: str, kind: str, named: Callable[[str], bool] = wanted) -> list[Setting]:
    """The settings of NCCL and of torch's NCCL backend in a file of this kind, in its order.
    named: another choice of fields, of Python's variables, and of its `function argument`."""
    if kind == "nccl_conf":
        return list(_conf(text))
    found: list[Setting] = []
    if kind in (*OF_CONTAINERS, DEEPSPEED):
        found += _of_documents(documents_of(text, kind))
    elif kind == "python":
        found += _python(text)
    else:
        lines_of = _OF_FILES.get(kind)
        found += _script(lines_of.sub(_as_shell, text) if lines_of else text)
    ignored = ignored_lines(text)
    kept = (one for one in found if one.line not in ignored and named(one.name))
    return sorted(dict.fromkeys(kept), key=lambda one: one.line)


def ignored_lines(text: str) -> set[int]:
    """The lines that say that lint is to leave them out."""
    return {number for number, line in enumerate(text.splitlines(), 1) if IGNORED.search(line)}


def _as_shell(line: re.Match[str]) -> str:
    """An instruction of a Dockerfile, or a line of a unit, as a command of a shell."""
    rest, word = line["rest"], line["word"]
    if word in ("RUN", None):
        return rest or ""
    rest = _QUOTED.sub(r"\2=\1", rest)
    old = _ENV_OLD.match(rest) if word == "ENV" else None
    rest = rest if word == "ENV" else rest.replace("%", "$")  # systemd computes it
    return f"export {old[1]}={old[2]}" if old else f"export {rest}"


def runs_only_tests(text: str) -> bool:
    """Whether a file runs NCCL's tests and names no framework."""
    return dict(matching("programs_named", text)).keys() == {"tests of NCCL"}


def meant_name(name: str) -> str:
    """The name with NCCL's prefix corrected if its letters are swapped, missing or doubled; else
    the name itself."""
    return _MISSPELT.sub("NCCL_", name, count=1)


def _script(text: str, first: int = 1, depth: int = 0) -> Iterator[Setting]:
    """Those of a script, and of the scripts and lists of options in its words."""
    script = read_shell(_DIRECTIVES.sub(r"\1", text), {}, first)
    runs = depth == 0 and (text.startswith("#!") or "#SBATCH" in text)
    exported = script.exported
    used = script.words - exported
    inner = [*script.written.values()]
    for name, value, how in script.assigned:
        plain = how not in _SEEN_BY_OTHERS
        own = plain and name in used
        local = runs and plain and name not in used | exported
        inner.append(placed(value.strip("\"'"), value))
        if how == "unset_command":
            yield Setting(name, None, value.line, unset=True)
        else:
            lasting = how != "command"
            yield Setting(name, _plain(value), value.line, lasting, own=own, local=local)
    only_tests = runs_only_tests(text)
    for command in script.commands:
        printed = command.words[:1] in (["echo"], ["printf"]) and not command.writes
        tests = only_tests or runs_only_tests(command.shown)
        for before, word in pairwise([placed("", 0), *command.words]) if not printed else ():
            option = word.partition("=")[0] if word.startswith("--") else before
            pairs = word.removeprefix(f"{option}=")
            for one in pairs.split(",") if "export" in option else [pairs]:
                if (pair := _PAIR.fullmatch(one)) and wanted(pair["name"]):
                    lasting = command.writes or (option.startswith("-") and not tests)
                    yield Setting(pair["name"], _plain(pair["value"]), word.line, lasting)
                elif one == word:
                    inner.append(word)
    for one in inner if depth < DEEPEST else ():
        if _NAMED.search(one) and len(one.split()) > 1:
            yield from _script(one, one.line, depth + 1)


_SEEN_BY_OTHERS = ("command", "declaration_command", "unset_command")


def _plain(value: str) -> str | None:
    """The value without quotes; for ${X:-1} its default; None if it is computed."""
    bare = value.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        bare = bare[1:-1]
    found = EXPANSION.fullmatch(bare)
    if found and found["default"] is not None:
        return found["default"]
    return None if "$" in bare or "`" in bare or "{{" in bare else bare


def _of_documents(documents: list[Any]) -> Iterator[Setting]:
    """Maps of names, maps with the fields name and value, and lists of NAME=value, in any style."""
    for part in parts_of(object, *documents):
        if isinstance(part, Map):
            name = part.get("name")
            if isinstance(name, Text) and part.keys() & {"value", "valueFrom"}:
                yield Setting(name, _of_yaml(part.get("value")), name.line)
            for key, value in part.items():
                if isinstance(value, Text) and (key.isupper() or not wanted(key)):
                    yield Setting(key, _of_yaml(value), value.line)
        if isinstance(part, Text) and _NAMED.search(part) and len(part.split()) > 1:
            yield from _script(part, part.line, 1)
        for one in part if isinstance(part, list) else ():
            pair = _PAIR.fullmatch(one) if isinstance(one, Text) else None
            if pair:
                yield Setting(pair["name"], _plain(pair["value"]), one.line)


def _of_yaml(value: object) -> str | None:
    return _plain(str(value)) if isinstance(value, Text) and value.how != "null" else None


def _python(text: str) -> Iterator[Setting]:
    """Assignments to an item of a map, calls that set a variable, maps of names, and arguments."""
    tree = parse_python(text)
    for node in ast.walk(tree) if tree else ():
        pairs: list[tuple[Any, Any]] = []
        if isinstance(node, ast.Assign):
            pairs = [(one.slice, node.value) for one in of_kind(node.targets, ast.Subscript)]
        elif isinstance(node, ast.Call):
            function = last_name(node)
            pairs = [(ast.Constant(f"{function} {one.arg}"), one.value) for one in node.keywords]
            if function in ("setdefault", "putenv", "setenv") and node.args:
                pairs.append((node.args[0], node.args[-1]))
        elif isinstance(node, ast.Dict):
            pairs = [*zip(node.keys, node.values, strict=True)]
        for key, value in pairs:
            name, given = (getattr(one, "value", None) for one in (key, value))
            if isinstance(name, str):
                is_known = isinstance(given, (str, int)) and " " not in str(given)  # else a help
                yield Setting(name, str(given) if is_known else None, value.lineno)


def _conf(text: str) -> Iterator[Setting]:
    """Settings as NCCL reads them: nothing is trimmed, quotes belong to the value, the first line
    that sets a name wins."""
    for row in parse_nccl_conf(text.encode("utf-8", "surrogateescape")):
        bare = row.name.strip().removeprefix("export ").strip()
        if row.name.startswith("#") or not wanted(bare):
            continue
        odd = next(
            (key for key, _found in matching("conf_faults", f"{row.name}={row.value}")), None
        )
        yield Setting(bare, _plain(row.value or ""), row.line or 0, odd=odd)
