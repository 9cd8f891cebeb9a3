"""Checks of settings: each is a function from a setting (or all settings of a file) to findings.
Values in, values out."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from packaging.version import Version

from unhang.core.catalogue.levels import is_older_nccl
from unhang.core.catalogue.own_tables import table
from unhang.core.catalogue.setting_values import names_in, value_fault
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import Findings, matching, row_of, said, source_of
from unhang.jobs.lint.settings import Setting, meant_name

PLATFORMS = ("amazon", "google", "hyperv")
# a variable that is older than this release needs no remark if NCCL's version is unknown
NEW_ENOUGH = "2.20"
NAMES = ("nccl_variables", "torch_variables", "not_real_settings", "renamed_settings")


@dataclass(frozen=True)
class Context:
    """Known facts about the job. Versions are None if unknown. rccl: whether its library is AMD's
    RCCL. silent: rows of setting_faults that are none here. beside: as in Place."""

    nccl: str | None = None
    torch: str | None = None
    platform: str | None = None
    rccl: bool = False
    silent: Collection[str] = ()
    beside: Callable[[str], str] = lambda _name: ""


def check_settings(settings: Sequence[Setting], context: Context) -> list[Finding]:
    """Every finding of a file's settings."""
    of_each = (one for setting in settings for one in check_setting(setting, context))
    return [*of_each, *_contradictions(settings)]


def check_setting(setting: Setting, context: Context) -> Findings:
    """The findings about one setting. A name that does not exist has no further findings."""
    if setting.unset:
        return
    name = setting.name
    if setting.odd:
        yield _said(setting.odd, setting)
    if first := next(_not_real(setting, context), None):
        yield first
        return
    of = "nccl_variables" if row_of("nccl_variables", name) else "torch_variables"
    if setting.local and row_of(of, name):
        yield _said("not_exported", setting)
    renamed = list(_renamed(setting, context))
    yield from renamed
    row = row_of(of, name) if not renamed else {}
    if setting.value == "":  # both libraries take it for unset
        yield from () if row or renamed else _unknown(setting)
        return
    graver = [*_hides(setting, context)]
    if row:
        graver += [*_versions(setting, row, of, context), *_value(setting, row, of, context)]
        if all(one.severity == "info" for one in graver):
            graver += _class(setting, row, context)
    elif not renamed and not graver:
        yield from _unknown(setting)
    yield from graver
    yield from _doubtful(setting, context)


def _hides(setting: Setting, context: Context) -> Findings:
    row = row_of("hiding_settings", f"{setting.name}={setting.value}")
    key = row.get("fault", "hides") if setting.lasting else "hides_once"
    if row and key not in context.silent:
        yield _said(
            key,
            setting,
            source_of("hiding_settings", row),
            hides=row["hides"],
            instead=row["instead"],
        )


def _said(key: str, setting: Setting, source: str = "", **values: Any) -> Finding:
    """A finding in the words of its row."""
    value, values = setting.value, {**asdict(setting), **values}
    shown = setting.name if value is None else f"{setting.name}={value}"
    return said(key, setting.line, shown, values, source)


def _not_real(setting: Setting, context: Context) -> Findings:
    name, row = setting.name, row_of("not_real_settings", setting.name)
    if setting.own:
        return
    if row and not row_of("nccl_platform_settings", f"{context.platform}/{name}"):
        source = source_of("not_real_settings", row)
        yield _said("not_real", setting, source, instead=row["instead"])
    elif name != name.upper() and any(row_of(one, name.upper()) for one in NAMES):
        yield _said("wrong_case", setting, upper=name.upper())


def _renamed(setting: Setting, context: Context) -> Findings:
    old, row = (row_of(one, setting.name) for one in ("renamed_settings", "torch_variables"))
    now = old.get("now") or row.get("now")
    since, does = str(old.get("since") or row.get("renamed") or ""), old.get("does", "")
    source = source_of("renamed_settings" if old else "torch_variables", old or row)
    if now and context.torch and since and _is_older(context.torch, since, "torch"):
        if old:
            yield _said("torch_name", setting, source, does=does)
    elif now:
        still = (old or row).get("still_read")
        both = f"; PyTorch reads that name from {since} on, so both until it has it"
        until = both if still and since and not context.torch else ""
        does = f"; it {does}" if does else ""
        values = {"since": since or "a rename", "does": does, "now": now, "until": until}
        yield _said("alias" if still else "no_alias", setting, source, **values)


def _unknown(setting: Setting) -> Findings:
    name, meant = setting.name, meant_name(setting.name)
    if name.startswith((*table("foreign_settings"),)) or setting.own or name != name.upper():
        return
    names = [*table("nccl_variables"), *table("torch_variables")]
    near = difflib.get_close_matches(meant, names, 1, 0.8 if meant == name else 1.0)
    if meant == name or near:  # else the prefix of another program's variables
        yield _said("misspelt" if near else "unknown", setting, near=(near or [""])[0])


def _versions(setting: Setting, row: Mapping[str, Any], of: str, context: Context) -> Findings:
    of_torch = of == "torch_variables"
    if context.rccl and not of_torch:
        return  # RCCL has its own release numbers
    have, what = (context.torch, "torch") if of_torch else (context.nccl, "NCCL")
    since, last, instead = row.get("since"), row.get("last"), row.get("instead") or row.get("now")
    values = {"what": what, "have": have, "since": since, "last": last, "instead": instead}
    source = source_of(of, row)
    if have and since and _is_older(have, str(since), what):
        yield _said("too_old", setting, source, **values)
    elif not have and since and not of_torch and not _is_older(str(since), NEW_ENOUGH, what):
        yield _said("since", setting, source, **values)
    if last and (have is None or _is_older(str(last), have, what)):
        key = "removed" if have or instead else "removed_once"
        yield _said(key, setting, source, **{**values, "instead": instead or "remove it"})
    elif instead and not of_torch:
        yield _said("deprecated", setting, source, **values)


def _is_older(left: str, right: str, what: str) -> bool:
    if what == "torch":
        return torch_release(left) < torch_release(right)
    return is_older_nccl(left, right)


def torch_release(version: str) -> Version:
    """The release that a build of torch is of: 2.4.0+cu121, and 2.4.0a0 of a vendor's image, are
    2.4.0. Raises packaging's InvalidVersion."""
    return Version(Version(version).base_version)


def _value(setting: Setting, row: Mapping[str, Any], of: str, context: Context) -> Findings:
    value = setting.value
    if value is None or setting.odd or (context.rccl and row.keys() & {"least", "most"}):
        return  # RCCL's valid ranges differ
    if fault := value_fault(setting.name, row, value, context.nccl):
        source = fault.source or source_of(of, row)
        yield _said("wrong_value", setting, source, why=fault.what, allowed=fault.allowed)


def _class(setting: Setting, row: Mapping[str, Any], context: Context) -> Findings:
    """Findings about debug-only and undocumented names, unless they have their default or the
    platform's own image sets them."""
    value, name, of = (setting.value or "").upper(), setting.name, row.get("class")
    is_default = value and str(row.get("default") or "").partition(" ")[0].upper() == value
    by_platform = row_of("nccl_platform_settings", f"{context.platform}/{name}")
    if is_default or by_platform or not setting.lasting:
        return
    source = source_of("nccl_variables", row)
    if of == "debug":
        forced = name == "NCCL_PROTO" and "LL128" in value and not value.startswith("^")
        yield _said("corrupts" if forced else "debug_only", setting, source)
    elif of == "undocumented" and name != "NCCL_COMM_ID":
        yield _said("undocumented", setting, source)
    elif row.get("use") == "debug":
        yield _said("torch_debug", setting, source_of("torch_variables"))


def _doubtful(setting: Setting, context: Context) -> Findings:
    """Values that a row's pattern finds."""
    for key, found in matching("setting_faults", f"{setting.name}={setting.value}"):
        if key not in context.silent:
            yield _said(key, setting, **found.groupdict())


def _contradictions(settings: Sequence[Setting]) -> Findings:
    final: dict[str, Setting] = {}
    for setting in settings:
        if setting.unset:
            final.pop(setting.name, None)
        elif setting.lasting:
            final[setting.name] = setting
    for row in table("nccl_contradictions").values():
        first, second = final.get(row["first"]), final.get(row["second"])
        if first is None or second is None or not _has(first, row.get("first_value")):
            continue
        if _has(second, row.get("second_value")):
            other, later = sorted((first, second), key=lambda one: one.line)
            source = source_of("nccl_contradictions", row)
            values = {"why": row["why"], "other": other.name, "line": other.line}
            yield _said("contradiction", later, source, **values)


def _has(setting: Setting, value: str | None) -> bool:
    own = (setting.value or "").upper()
    names = [token.upper() for token in names_in(own)] if own else []
    return bool(own) if value is None else value.upper() in (own, *names)
