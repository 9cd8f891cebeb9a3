"""Checks of settings: each is a function from a setting (or all settings of a file) to findings.
Values in, values out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from unhang.core.catalogue.setting_values import names_in, value_fault, whole_number
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import Knowledge
from unhang.jobs.lint.settings import Setting, meant_name
from unhang_node.base.versions.compare import compare_versions, holds
from unhang_node.base.versions.comparison import Comparison

PLATFORMS = ("amazon", "google", "hyperv")
# a variable that is older than this release needs no remark if NCCL's version is unknown
NEW_ENOUGH = "2.20"
LONG_S = 7200
NAMES = ("nccl_variables", "torch_variables", "not_real_settings", "renamed_settings")


@dataclass(frozen=True)
class Context:
    """Known facts about the job. Versions are None if unknown. rccl: whether its library is AMD's
    RCCL. pod_network: whether it has a network of its own, whose interface is eth0."""

    nccl: str | None = None
    torch: str | None = None
    platform: str | None = None
    rccl: bool = False
    pod_network: bool = False


def check_settings(
    settings: Sequence[Setting], known: Knowledge, context: Context
) -> list[Finding]:
    """Every finding of a file's settings, by line."""
    found = [
        finding
        for setting in settings
        if not setting.unset
        for finding in check_setting(setting, known, context)
    ]
    found += list(_contradictions(settings, known)) + list(_product(settings, known))
    return sorted(
        found,
        key=lambda one: (one.line, ("error", "warning", "info").index(one.severity), one.rule),
    )


def check_setting(setting: Setting, known: Knowledge, context: Context) -> Iterator[Finding]:
    """The findings about one setting. A name that does not exist has no further findings."""
    if setting.odd:
        yield _finding(
            setting,
            "conf-syntax",
            "error",
            setting.odd,
            f"{setting.name}=VALUE, nothing else on the line",
            known.source("nccl_variables"),
        )
    if first := next(_not_real(setting, known, context), None):
        yield first
        return
    if setting.local and (
        known.row("nccl_variables", setting.name) or known.row("torch_variables", setting.name)
    ):
        why = (
            "without export only this script sees it: the programs that it starts do not, unless"
            " the caller of the script exported the name"
        )
        yield _finding(
            setting,
            "not-exported",
            "warning",
            why,
            f"export {setting.name}=...",
            known.source("nccl_variables"),
        )
    renamed = list(_renamed(setting, known, context))
    yield from renamed
    table = "nccl_variables" if known.row("nccl_variables", setting.name) else "torch_variables"
    row = known.row(table, setting.name) if not renamed else None
    if setting.value == "":  # both libraries take it for unset
        yield from () if row or renamed else _unknown(setting, known)
        return
    graver = list(_hides(setting, known))
    if row is not None:
        graver += [
            *_versions(setting, row, table, known, context),
            *_value(setting, row, table, known, context),
        ]
        if not any(one.severity != "info" for one in graver):
            graver += list(_class(setting, row, known, context))
    elif not renamed and not graver:
        yield from _unknown(setting, known)
    yield from graver
    if not any(one.rule == "wrong-value" for one in graver):
        yield from _timeout(setting, known)
    yield from _interface(setting, known, context)


def _finding(
    setting: Setting, rule: str, severity: str, why: str, instead: str, source: str
) -> Finding:
    shown = f"{setting.name}={setting.value}" if setting.value is not None else setting.name
    return Finding(setting.line, rule, severity, shown, why, instead, source)


def _not_real(setting: Setting, known: Knowledge, context: Context) -> Iterator[Finding]:
    if setting.own:
        return
    row = known.row("not_real_settings", setting.name)
    if row and not (setting.name == "NCCL_DYNAMIC_CHUNK_SIZE" and context.platform == "google"):
        instead = str(row["instead"])
        if (
            "TIMEOUT" in setting.name
            and "SOCKET" not in setting.name
            and "HEARTBEAT" not in setting.name
        ):
            instead += "; " + "; ".join(
                f"{name}: {one['how']}"
                for name, one in list(known.tables["timeout_settings"].items())[:6]
            )
        yield _finding(
            setting,
            "name-not-real",
            "error",
            "no release of NCCL reads this name; it changes nothing",
            instead,
            known.source("not_real_settings", row),
        )
    elif setting.name != setting.name.upper() and any(
        known.row(table, setting.name.upper()) for table in NAMES
    ):
        yield _finding(
            setting,
            "wrong-case",
            "error",
            "names are case sensitive; nothing reads this one",
            setting.name.upper(),
            known.source("nccl_variables"),
        )


def _renamed(setting: Setting, known: Knowledge, context: Context) -> Iterator[Finding]:
    row = known.row("torch_variables", setting.name)
    old = known.row("renamed_settings", setting.name)
    now = (old or {}).get("now") or (row or {}).get("now")
    if not now:
        return
    since = str((old or {}).get("since") or (row or {}).get("renamed") or "")
    if context.torch and since and _is(context.torch, "<", since, "torch"):
        if old:
            yield _finding(
                setting,
                "torch-name",
                "info",
                f"PyTorch's variable, not NCCL's; it {old['does']} and makes no timeout longer",
                "init_process_group(timeout=...) for a longer limit",
                known.source("renamed_settings", old),
            )
        return
    still = (old or row or {}).get("still_read")
    does = f"; it {old['does']}" if old and old.get("does") else ""
    until = (
        f"; PyTorch reads that name from {since} on, so both until it has it"
        if still and since and not context.torch
        else ""
    )
    yield _finding(
        setting, "renamed", "warning" if still else "error",
        f"PyTorch's name from before {since or 'a rename'}, {'still read as an alias' if still else 'no longer read'}{does}; it makes no timeout longer",  # noqa: E501
        f"{now}, if the job needs it{until}",
        known.source("renamed_settings" if old else "torch_variables", old or row),
    )  # fmt: skip


def _unknown(setting: Setting, known: Knowledge) -> Iterator[Finding]:
    if any(
        setting.name.startswith(prefix) for prefix in known.tables["foreign_settings"]
    ) or setting.name in ("RDMAV_FORK_SAFE", "CUDA_LAUNCH_BLOCKING"):
        return
    if setting.own or setting.name != setting.name.upper():
        return
    names = [*known.tables["nccl_variables"], *known.tables["torch_variables"]]
    meant = meant_name(setting.name)
    near = difflib.get_close_matches(meant, names, 1, 0.8 if meant == setting.name else 1.0)
    if meant != setting.name and not near:
        return  # the prefix of another program's variables
    yield _finding(
        setting, "unknown-name", "warning" if near else "info",
        "no public release of NCCL or torch reads this name: it is misspelt or belongs to a plugin",
        near[0] if near else "nothing, unless a plugin documents it",
        known.source("nccl_variables"),
    )  # fmt: skip


def _versions(
    setting: Setting, row: Mapping[str, Any], table: str, known: Knowledge, context: Context
) -> Iterator[Finding]:
    if context.rccl and table == "nccl_variables":
        return  # RCCL has its own release numbers
    torch = table == "torch_variables"
    have, order, what = (
        (context.torch, "torch", "torch") if torch else (context.nccl, "nccl", "NCCL")
    )
    source = known.source(table, row)
    since, last, instead = row.get("since"), row.get("last"), row.get("instead") or row.get("now")
    if have and since and _is(have, "<", str(since), order):
        yield _finding(
            setting,
            "needs-newer",
            "error",
            f"{what} reads it from {since} on, but {have} is in use",
            f"{what} {since} or newer, or remove it",
            source,
        )
    elif not have and since and not torch and _is(str(since), ">=", NEW_ENOUGH, order):
        yield _finding(
            setting,
            "needs-newer",
            "info",
            f"{what} reads it from {since} on",
            f"make sure that the job runs {what} {since} or newer (--nccl says which)",
            source,
        )
    if last and (have is None or _is(have, ">", str(last), order)):
        severity = "warning" if have or instead else "info"
        yield _finding(
            setting,
            "removed",
            severity,
            f"{what} reads it up to {last}",
            str(instead or "remove it"),
            source,
        )
    elif instead and not torch:
        yield _finding(
            setting, "deprecated", "warning", "the variable was renamed", str(instead), source
        )


def _is(left: str, operator: str, right: str, order: str) -> bool:
    if order == "torch":
        ours, theirs = torch_release(left), torch_release(right)
        sign = (ours > theirs) - (ours < theirs)
        return holds(Comparison(sign, sign == 0), operator) is True
    return holds(compare_versions(left, right, order), operator) is True


def torch_release(version: str) -> Version:
    """The release that a build of torch is of: 2.4.0+cu121, and 2.4.0a0 of a vendor's image, are
    2.4.0. Raises packaging's InvalidVersion."""
    return Version(Version(version).base_version)


def _value(
    setting: Setting, row: Mapping[str, Any], table: str, known: Knowledge, context: Context
) -> Iterator[Finding]:
    value = setting.value
    if value is None or setting.odd or (context.rccl and ("least" in row or "most" in row)):
        return  # RCCL's valid ranges differ
    if fault := value_fault(setting.name, row, value, context.nccl):
        yield _finding(
            setting,
            "wrong-value",
            "error",
            fault.what,
            fault.allowed,
            fault.source or known.source(table, row),
        )


def _hides(setting: Setting, known: Knowledge) -> Iterator[Finding]:
    row = known.row("hiding_settings", f"{setting.name}={setting.value}")
    if row:
        severity = "warning" if setting.lasting else "info"
        yield _finding(
            setting,
            "hides-fault",
            severity,
            str(row["hides"]),
            str(row["instead"]),
            known.source("hiding_settings", row),
        )


def _class(
    setting: Setting, row: Mapping[str, Any], known: Knowledge, context: Context
) -> Iterator[Finding]:
    """Findings about debug-only and undocumented names, unless they have their default or the
    platform's own image sets them."""
    is_default = (
        setting.value
        and str(row.get("default") or "").partition(" ")[0].upper() == setting.value.upper()
    )
    if is_default or (
        context.platform
        and known.row("nccl_platform_settings", f"{context.platform}/{setting.name}")
    ):
        return
    source = known.source("nccl_variables", row)
    if row.get("class") == "debug" and setting.lasting:
        severity = (
            "warning"
            if setting.name == "NCCL_PROTO"
            and "LL128" in (setting.value or "").upper()
            and not (setting.value or "").startswith("^")
            else "info"
        )
        why = (
            "forcing LL128 where it is not supported corrupts data"
            if severity == "warning"
            else "for debugging only: NVIDIA asks not to use it in production"
        )
        yield _finding(
            setting,
            "debug-only",
            severity,
            why,
            "remove it after the experiment, or name with --platform the cloud whose own image"
            " sets it",
            source,
        )
    elif row.get("class") == "undocumented" and setting.lasting and setting.name != "NCCL_COMM_ID":
        yield _finding(
            setting,
            "undocumented",
            "info",
            "NCCL's source reads it, but it is not documented; any release may remove it",
            "remove it, or pin the NCCL release that it was tested with",
            source,
        )
    elif row.get("use") == "debug" and setting.lasting:
        yield _finding(
            setting,
            "debug-only",
            "info",
            "for debugging only",
            "remove it when the fault is found",
            known.source("torch_variables", row),
        )


def _timeout(setting: Setting, known: Knowledge) -> Iterator[Finding]:
    number = whole_number(setting.value or "")
    if number is None:
        return
    if setting.name == "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC" and number >= LONG_S:
        yield _finding(
            setting,
            "timeout-hours",
            "warning",
            f"a watchdog that hangs is noticed after {number / 3600:.1f} hours; the timeout of"
            " collectives is a different one",
            "600, and init_process_group(timeout=...) for collectives",
            known.source("torch_variables"),
        )
    if setting.name == "NCCL_IB_TIMEOUT" and (number == 0 or number > 23):
        why = (
            "with 0 and with values from 32 on a transfer waits for ever"
            if number == 0 or number >= 32
            else (
                f"each try waits {4.096e-6 * 2**number:.0f} s, times NCCL_IB_RETRY_CNT: a dead link"
                " is noticed after minutes to hours"
            )
        )
        yield _finding(
            setting,
            "timeout-hours",
            "warning",
            why,
            "20 is the default, 22 serves very large fabrics",
            known.source("nccl_variables"),
        )


def _interface(setting: Setting, known: Knowledge, context: Context) -> Iterator[Finding]:
    value = setting.value or ""
    if (
        setting.name in ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME")
        and value
        and not value.startswith(("=", "^"))
    ):
        if value.split(",")[0] in ("lo", "docker0", "virbr0"):
            yield _finding(
                setting,
                "wrong-value",
                "warning",
                f"no other machine can be reached over {value}",
                "the interface that the nodes share, by exact name: ==eno1",
                known.source("nccl_variables"),
            )
        elif value.split(",")[0] in ("eth0", "eth1") and not (
            context.pod_network and value == "eth0"
        ):
            yield _finding(
                setting,
                "interface-guessed",
                "info",
                "this is an example name from guides, and NCCL reads it as a prefix: eth1 also"
                " matches eth10; many machines have no eth0",
                f"={value}, checked with ip -br addr on every node",
                known.source("nccl_variables"),
            )
    adapter = value.split(",")[0].partition(":")[0]
    if (
        setting.name == "NCCL_IB_HCA"
        and not value.startswith(("=", "^"))
        and re.search(r"_[1-9]$", adapter)
    ):
        yield _finding(
            setting,
            "prefix-match",
            "info",
            f"NCCL reads it as a prefix: {adapter} also matches {adapter}0 to {adapter}9",
            f"={value}",
            known.source("nccl_variables"),
        )


def _contradictions(settings: Sequence[Setting], known: Knowledge) -> Iterator[Finding]:
    final: dict[str, Setting] = {}
    for setting in settings:
        if setting.unset:
            final.pop(setting.name, None)
        elif setting.lasting:
            final[setting.name] = setting
    for row in known.tables["nccl_contradictions"].values():
        first, second = final.get(row["first"]), final.get(row["second"])
        if (
            first
            and second
            and _has(first, row.get("first_value"))
            and _has(second, row.get("second_value"))
        ):
            later = max(first, second, key=lambda one: one.line)
            other = first if later is second else second
            yield _finding(
                later,
                "contradiction",
                "warning",
                f"{row['why']} ({other.name} is in line {other.line})",
                "only one of the two",
                known.source("nccl_contradictions", row),
            )


def _has(setting: Setting, value: str | None) -> bool:
    if value is None:
        return bool(setting.value)
    return setting.value is not None and (
        setting.value.upper() == value.upper()
        or value.upper() in [token.upper() for token in names_in(setting.value)]
    )


def _product(settings: Sequence[Setting], known: Knowledge) -> Iterator[Finding]:
    """Checks that threads times sockets is at most 64."""
    final = {setting.name: setting for setting in settings if setting.value}
    threads, sockets = final.get("NCCL_SOCKET_NTHREADS"), final.get("NCCL_NSOCKS_PERTHREAD")
    if (
        threads
        and sockets
        and (one := whole_number(threads.value or ""))
        and (two := whole_number(sockets.value or ""))
        and one * two > 64
    ):
        later = max(threads, sockets, key=lambda setting: setting.line)
        yield _finding(
            later,
            "contradiction",
            "error",
            f"NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD = {one * two:g}, at most 64 is allowed",
            "4 and 4 for 100 Gb/s Ethernet",
            known.source("nccl_variables"),
        )
