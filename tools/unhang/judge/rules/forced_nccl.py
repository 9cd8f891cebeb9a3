"""The variable through which all programs of a node load one NCCL: advice about that NCCL begins
with it, because no other release is loaded before it is gone. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from posixpath import dirname
from typing import Any

from unhang.judge.rules.role_needs import wants_another_nccl
from unhang.judge.rules.rules import Rule
from unhang_node.base.versions.compare import compare_versions, holds

_LIBRARIES, _SETTINGS = ("nccl", "libraries", "*"), ("nccl", "settings", "*")
VERSION = (*_LIBRARIES, "version")
SOME_JOBS = "nccl-release-fault-of-some-jobs"  # its advice names releases of a table's rows
READS = frozenset(
    [VERSION, (*_LIBRARIES, "path"), *((*_SETTINGS, name) for name in ("name", "value", "file"))]
)


def is_about_nccl(rule: Rule) -> bool:
    """Whether a rule says that a release of NCCL has a fault, or is not the policy's."""
    return VERSION in rule.decision_reads and (
        rule.id == SOME_JOBS or wants_another_nccl(rule.id, rule.row["remedy"])
    )


def with_first_step(rule: Rule, nccl: Any, item: Any, person: str) -> str:
    """The advice of a rule that wants another NCCL, with the variable to mend first if one loads
    the library that it is about: that of the item (a library or a version), else the oldest."""
    if nccl is None or not is_about_nccl(rule):
        return person
    versions = {
        str(one.path): one.version for one in nccl.libraries or () if one.path and one.version
    }
    meant = {item if isinstance(item, str) else getattr(item, "path", None)}
    for step, path in _forced(nccl, versions):
        known = {*versions, *versions.values()} & meant
        if {path, versions[path]} & meant or (not known and _is_oldest(versions, path)):
            then = f"; then {person}" if person else ""
            return f"first {step}, through which NCCL {versions[path]} is loaded{then}"
    return person


def _is_oldest(versions: Mapping[str, str], path: str) -> bool:
    return not any(
        holds(compare_versions(other, versions[path], "nccl"), "<") for other in versions.values()
    )


def _forced(nccl: Any, paths: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(what to do, path of the library that a variable loads)."""
    for one in nccl.settings or ():
        named = (one.value or "").replace(" ", ":").split(":")
        where = one.file or "the environment of the jobs"
        for path in paths:
            if one.name == "LD_PRELOAD" and path in named:
                yield f"take libnccl out of LD_PRELOAD in {where}", path
            if one.name == "LD_LIBRARY_PATH" and dirname(path) in named:
                yield f"take {dirname(path)} out of LD_LIBRARY_PATH in {where}", path
