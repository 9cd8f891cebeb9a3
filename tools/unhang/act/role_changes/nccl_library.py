"""The package of libnccl that a node should have, from the policy's version or minimum, the
installed packages and the offered ones. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from unhang_node.base.versions.compare import compare_versions, holds

LIBRARY, HEADERS = "libnccl2", "libnccl-dev"
_PACKAGE = re.compile(
    r"^(?P<nccl>[0-9]+(?:\.[0-9]+)*)-[^+]*(?:\+cuda(?P<cuda>[0-9]+(?:\.[0-9]+)?))?"
)


@dataclass
class LibraryPlan:
    """install: {package: version}, empty if there is nothing to do; needs_offers: whether the
    repositories must be queried; problems: reasons why nothing can be done."""

    install: dict[str, str] = field(default_factory=dict)
    needs_offers: bool = False
    is_downgrade: bool = False
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan_library(
    policy: Mapping[str, Any],
    libraries: Sequence[Mapping[str, Any]],
    packages: Sequence[Mapping[str, Any]],
    offers: Mapping[str, Sequence[Mapping[str, Any]]] | None,
) -> dict[str, Any]:
    """A LibraryPlan as a dict.

    policy: unhang_policy; libraries, packages: nccl.libraries and packages.installed of the facts;
    offers: {name: [{version}]}, None if the repositories were not queried.
    """
    plan = LibraryPlan()
    nccl = policy.get("nccl") or {}
    if not nccl.get("version") and not nccl.get("min"):
        return asdict(plan)
    for row in libraries:
        if (
            row.get("version")
            and row.get("where") != "container"
            and not row.get("package")
            and not _satisfies(row["version"], nccl)
        ):
            plan.notes.append(
                f"{row['path']} is {row['version']} and of no package: bring its environment to"
                f" {_wanted(nccl)}, with pip where pip installed it"
            )
    installed = {
        row["name"]: row["version"]
        for row in packages
        if row.get("name") in (LIBRARY, HEADERS) and row.get("version")
    }
    if LIBRARY not in installed or _satisfies(_nccl_of(installed[LIBRARY]), nccl):
        return asdict(plan)
    plan.needs_offers = True
    if offers is not None:
        _choose(plan, nccl, installed, offers)
    return asdict(plan)


def _choose(
    plan: LibraryPlan,
    nccl: Mapping[str, Any],
    installed: Mapping[str, str],
    offers: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    offered = [row["version"] for row in offers.get(LIBRARY) or ()]
    fitting = [
        version
        for version in offered
        if _satisfies(_nccl_of(version), nccl) and _same_cuda(version, installed[LIBRARY])
    ]
    if not fitting:
        found = ", ".join(offered) or "none"
        plan.problems.append(
            f"the node's repositories do not have {LIBRARY}"
            f" {_wanted(nccl)}{_for_cuda(installed[LIBRARY])}; they have {found}; add the"
            " repository"
        )
        return
    # For a minimum the lowest sufficient version, which is the smallest change; of several builds
    # the one for the same CUDA, else for the oldest.
    chosen = min(
        fitting,
        key=lambda version: (
            _key(_nccl_of(version)),
            _cuda_of(version) != _cuda_of(installed[LIBRARY]),
            _key(_cuda_of(version) or "0"),
        ),
    )
    plan.install[LIBRARY] = chosen
    if HEADERS in installed:
        if chosen not in [row["version"] for row in offers.get(HEADERS) or ()]:
            plan.install.clear()
            plan.problems.append(
                f"{HEADERS} {chosen} is not in the node's repositories, and it has to go along, for"
                " it is installed here"
            )
            return
        plan.install[HEADERS] = chosen
    plan.is_downgrade = bool(holds(compare_versions(chosen, installed[LIBRARY], "deb"), "<"))


def _satisfies(version: str, nccl: Mapping[str, Any]) -> bool:
    if nccl.get("version"):
        return bool(holds(compare_versions(version, nccl["version"], "nccl"), "=="))
    return bool(holds(compare_versions(version, nccl["min"], "nccl"), ">="))


def _wanted(nccl: Mapping[str, Any]) -> str:
    return str(nccl["version"]) if nccl.get("version") else f"{nccl['min']} or newer"


def _nccl_of(version: str) -> str:
    """2.21.5 from 2.21.5-1+cuda12.4."""
    found = _PACKAGE.match(version)
    return found["nccl"] if found else version


def _cuda_of(version: str) -> str | None:
    found = _PACKAGE.match(version)
    return found["cuda"] if found else None


def _same_cuda(version: str, installed: str) -> bool:
    """Whether a build is for the installed one's major release of CUDA: others need another driver
    and toolkit."""
    here, there = _cuda_of(installed), _cuda_of(version)
    return here is None or there is None or here.split(".")[0] == there.split(".")[0]


def _for_cuda(installed: str) -> str:
    cuda = _cuda_of(installed)
    return f" for CUDA {cuda.split('.')[0]}" if cuda else ""


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
