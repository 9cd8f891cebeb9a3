"""Settings of NCCL and of torch's NCCL backend, and the faults of one: name, value, release, use in
production."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.core.catalogue.setting_values import value_fault
from unhang.core.schemas.reading import nearest
from unhang_node.base.versions.compare import compare_versions, holds

FIELD_BYTES = 1023  # NCCL truncates names and values in its file to this length


@dataclass(frozen=True)
class Known:
    """Rows by name, as the catalogue's tables have them. not_real: name -> what to use instead.
    renamed: name -> its name now."""

    nccl: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    torch: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    not_real: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def read_known() -> Known:
    """The settings in the catalogue; the audit reads the same tables. Raises UserError."""
    return Known(
        nccl=table("nccl_variables"),
        torch=table("torch_variables"),
        not_real={name: row["instead"] for name, row in table("not_real_settings").items()},
        renamed={name: row["now"] for name, row in table("renamed_settings").items()},
    )


def setting_faults(
    known: Known,
    name: str,
    value: str,
    versions: Iterable[str],
    *,
    allow_debug: bool,
    plugin: Iterable[str] = (),
) -> Iterator[str]:
    """The faults of one setting, a line each. versions: of NCCL on the node. plugin: names that a
    network plugin reads and NCCL does not."""
    yield from _text_faults(name, value)
    if name in plugin:
        return
    if name in known.not_real:
        yield f"{name}: no release of NCCL reads it; use {known.not_real[name]}"
        return
    if name in known.renamed:
        yield f"{name}: torch renamed it; use {known.renamed[name]}"
        return
    if name.startswith("NCCL_"):
        yield from _nccl_faults(known, name, value, versions, allow_debug)
    elif name.startswith("TORCH_"):
        yield from _torch_faults(known, name, value)


def _torch_faults(known: Known, name: str, value: str) -> Iterator[str]:
    row = known.torch.get(name)
    if row is None:
        yield f"{name} is not a variable of torch's NCCL backend{nearest(name, known.torch)}"
        return
    yield from _value_faults(row, name, value)


def is_read(row: Mapping[str, Any], versions: Iterable[str], order: str) -> bool:
    """Whether one of the releases reads the variable of this row. order: as compare_versions has
    it."""
    return any(_readers(row, version, order) is None for version in versions)


def _readers(row: Mapping[str, Any], release: str, order: str) -> str | None:
    """None if the release reads the variable of this row; else "newer" or "older", the releases
    that do."""
    if "since" in row and holds(compare_versions(release, str(row["since"]), order), "<") is True:
        return "newer"
    if "last" in row and holds(compare_versions(release, str(row["last"]), order), ">") is True:
        return "older"
    return None


def _nccl_faults(
    known: Known, name: str, value: str, versions: Iterable[str], allow_debug: bool
) -> Iterator[str]:
    row = known.nccl.get(name)
    if row is None:
        yield f"{name} is not a variable of NCCL{nearest(name, known.nccl)}"
        return
    if row["class"] != "system" and not allow_debug:
        kind = "a workaround to be removed again" if row["class"] == "debug" else "not documented"
        yield (
            f"{name}: not for production, {kind}; use the profile that is for it, or allow it with"
            " nccl_profile_allow_debug"
        )
    versions = list(versions)
    yield from _value_faults(row, name, value, versions)
    for version in versions:
        wanted = _readers(row, version, "nccl")
        if wanted == "newer":
            yield f"{name} is read from NCCL {row['since']} on, and this node has {version}"
        if wanted == "older":
            yield f"{name} was last read by NCCL {row['last']}, and this node has {version}" + (
                f"; use {row['instead']}" if "instead" in row else ""
            )


def _value_faults(
    row: Mapping[str, Any], name: str, value: str, releases: Sequence[str] = ()
) -> Iterator[str]:
    found = [value_fault(name, row, value, release) for release in releases or (None,)]
    if fault := next(filter(None, found), None):
        yield f"{name} must be {fault.allowed}, and is {value!r}"


def _text_faults(name: str, value: str) -> Iterator[str]:
    if any(not character.isprintable() for character in value) or value != value.strip():
        yield f"{name} must be one line without blanks around it, and is {value!r}"
    if value[:1] in ("'", '"'):
        yield f"{name} has quotes, which would become part of it: {value!r}"
    if len(value.encode()) > FIELD_BYTES or len(name.encode()) > FIELD_BYTES:
        yield (
            f"{name} has {len(value.encode())} bytes, more than {FIELD_BYTES}; NCCL cuts the rest"
            " off"
        )
