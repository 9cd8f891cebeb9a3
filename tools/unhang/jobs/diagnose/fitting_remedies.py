"""Fits a cause's remedy to the facts of the log: versions that are met, GPUs that need a newer
driver, experiments that were made, other accelerators."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import names_in
from unhang.jobs.diagnose.matching.signatures import load_signatures
from unhang.jobs.diagnose.meaning.evidence import Evidence
from unhang_node.base.versions.comparison import NotAVersion
from unhang_node.base.versions.products import compare_driver, compare_kernel, compare_nccl

# keys of a policy with a version; the fact of a log is named after each, and so is the order
_COMPARED = {"driver": compare_driver, "nccl": compare_nccl, "kernel": compare_kernel}
# the first release of a branch that serves all GPUs of the catalogue and is still maintained
LIVE_BRANCH = "580.65.06"
FAILING_GPU, QUOTES = "xid_hardware", "\"'"
_BARE = re.compile(r"(?i:NVIDIA |GeForce )")
# The launcher or scheduler that prints a line -> the first words of its commands. A remedy may have
# a clause for each: "under Ray: ...; over ssh: ...".
LAUNCHERS = {
    "Slurm": ("scontrol ", "srun ", "sacct ", "sinfo"),
    "Ray": ("ray ",),
    "Kubernetes": ("kubectl ",),
    "ssh": ("ssh ",),
}
_CLAUSE = re.compile(
    r"(?:^|; )(?:under|over) (?P<launcher>Slurm|Ray|Kubernetes|ssh)(?: or \w{1,20})?: "
)

_KIND = re.compile(r"; in (?P<kind>training|a pipeline|a server): ")
FRAMEWORKS = ("JAX", "Horovod", "PyTorch")
_FRAMEWORK = re.compile(rf"; with (?P<kind>{'|'.join(FRAMEWORKS)}): ")

_FRAMEWORK_NAMES = {"llamafactory": "llama-factory"}


@cache
def _own_words() -> dict[str, list[Mapping[str, Any]]]:
    """{id of the evidence: its words}, of signatures and of rules."""
    rows = [
        (one, (signature.id, *one.get("also", ())))
        for signature in load_signatures()
        for one in signature.words
    ]
    rows += [(row, (row["id"],)) for row in table("words_of_rules").values()]
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row, ids in rows:
        for one in ids:
            found.setdefault(one, []).append(row)
    return found


def own_words(cause: str, evidence: Sequence[Evidence]) -> Mapping[str, Any]:
    """The words of the strongest evidence of a cause, of equals the first; of a failing GPU what
    the table has of the Xids that were seen; {} if there are none."""
    most = max((one.weight for one in evidence), default=0)
    known = (
        row
        for one in evidence
        if one.weight == most
        for row in ([one.words] if one.words else _own_words().get(one.id, ()))
    )
    return next(
        (row for row in known if row.get("cause", cause) == cause),
        _of_xids(evidence) if cause == FAILING_GPU else {},
    )


def _of_xids(evidence: Sequence[Evidence]) -> Mapping[str, str]:
    rows = {
        f"Xid {event.fields['code']}": {
            **row,
            "action": event.fields.get("asks") or row["action"],
        }
        for one in evidence
        for event in one.events
        if event.fact == "xid" and (row := table("xids").get(str(event.fields["code"])))
    }
    parts = {"means": "meaning", "person": "action"}
    return {
        part: "; ".join(f"{xid}: {row[field]}" for xid, row in rows.items())
        for part, field in parts.items()
        if rows
    }


def fitting_remedy(
    remedy: Mapping[str, Any], facts: Facts, own: Mapping[str, Any]
) -> dict[str, Any]:
    """The remedy with the release that is proven to cure the log's driver, or with a driver that
    the log's GPUs can use; without the parts of a policy whose lower bound (`nccl.min`) every
    version of the log meets, and without its role if nothing else is left. own: the words of the
    line that speaks for the cause; where they have another title, the cause's role is left out too,
    unless they say that it is kept, or that a proven release is."""
    proven = {} if own.get("title") and not own.get("role") else remedy.get("proven", {})
    role = remedy.get("role")
    remedy = {name: value for name, value in remedy.items() if name != "proven"}
    if own.get("person"):
        remedy = {
            **({} if own.get("title") and own.get("role") != "kept" else remedy),
            "person": own["person"],
        }
    found = {**remedy, **_proven(remedy, role, proven, facts)}
    if person := found.get("person"):
        person = for_these_launchers(person, launchers(facts))
        person = for_these_kinds(person, frameworks(facts) or FRAMEWORKS, _FRAMEWORK)
        found["person"] = for_these_kinds(person, kinds(facts))
    wanted = {
        key: _for_these_gpus(key, values, facts)
        for key, values in (found.get("variables") or {}).items()
    }
    found["variables"] = left = {
        key: values
        for key, values in wanted.items()
        if not (key in _COMPARED and _is_met(key, values.get("min"), facts))
    }
    gone = ("role", "variables")[not wanted :] if not left else ()
    return {name: value for name, value in found.items() if name not in gone}


def _proven(
    remedy: Mapping[str, Any], role: str | None, proven: Mapping[str, str], facts: Facts
) -> dict[str, Any]:
    """The parts of a remedy that name the release which cured the log's driver, {} without such or
    if it does not serve the log's GPUs."""
    drivers = [*facts.values("driver_version"), *facts.values("bad_driver")]
    cured = next((driver for driver in proven if driver in drivers), None)
    least = first_driver(facts.values("gpu"))
    if not cured or (least and _is_older(proven[cured], least) is True):
        return {}
    person = f"install {proven[cured]}, which cured {cured}; or {remedy['person']}"
    return {
        "role": role,
        "variables": {"driver": {"version": proven[cured], "held": True}},
        "person": person,
    }


def _is_met(key: str, least: str | None, facts: Facts) -> bool:
    found = facts.values(f"{key}_version") if least else []
    return bool(found) and all(_is_older(one, least or "", key) is False for one in found)


def _is_older(one: str, other: str, order: str = "driver") -> bool | None:
    """None where a text of a log is no version, or the two have no order."""
    try:
        sign = _COMPARED[order](one, other).sign
    except NotAVersion:
        return None
    return None if sign is None else sign < 0


def _for_these_gpus(key: str, values: Any, facts: Facts) -> Any:
    """A driver's version or lower bound that is older than the first driver for a GPU of the log
    becomes a newer branch."""
    if key != "driver" or not isinstance(values, Mapping):
        return values
    named = str(values.get("version") or values.get("min") or "")
    least = first_driver(facts.values("gpu"))
    if not named or least is None or _is_older(named, least) is False:
        return values
    return {
        "min": LIVE_BRANCH,
        **{name: value for name, value in values.items() if name not in ("version", "min")},
    }


def launchers(facts: Facts) -> tuple[str, ...]:
    """The launchers and schedulers of which the log has lines."""
    programs = _programs(facts)
    return tuple(name for name in LAUNCHERS if name in programs)


def _programs(facts: Facts) -> set[str]:
    return {event.signature.program for event in facts.plain}


def for_these_launchers(person: str, named: Sequence[str]) -> str:
    """The text without clauses for other launchers than those of the log. If it has several and
    none is of the log's: what comes before them, which holds for every launcher."""
    head, clauses = _clauses(person, _CLAUSE)
    kept = [text.removeprefix("; ") for one, text in clauses if one["launcher"] in named]
    if not kept:
        return head if len(clauses) > 1 and head else person
    return "; ".join(filter(None, [head, *kept]))


def _clauses(person: str, begin: re.Pattern[str]) -> tuple[str, list[tuple[re.Match[str], str]]]:
    """(what comes before them, the clauses of a text, each with its beginning)."""
    starts = list(begin.finditer(person))
    ends = [*(one.start() for one in starts), len(person)]
    parts = [person[at:end] for at, end in pairwise(ends)]
    return person[: ends[0]], list(zip(starts, parts, strict=True))


def kinds(facts: Facts) -> tuple[str, ...]:
    """What kinds of job the log shows, as the clauses of remedies name them."""
    pipeline = ("a pipeline",) if facts.of("unbatched_message") else ()
    return (
        *(("a server",) if serves(facts) or facts.of("vllm_stall") else ("training",)),
        *pipeline,
    )


def serves(facts: Facts) -> bool:
    """Whether the log has lines of a server for language models."""
    started = facts.of("server_started")
    return bool(started or any(one.startswith(names_in("servers")) for one in _programs(facts)))


def frameworks(facts: Facts) -> tuple[str, ...]:
    """The frameworks of which the log has lines."""
    programs = " ".join(_programs(facts) - {"any"})
    seen = [name for name in FRAMEWORKS[:2] if name in programs]
    return (
        *seen,
        *(
            ("PyTorch",)
            if "JAX" not in seen and any(name in programs for name in names_in("of_pytorch"))
            else ()
        ),
    )


def for_these_kinds(person: str, told: Sequence[str], kinds_of: re.Pattern[str] = _KIND) -> str:
    """The text without clauses for other kinds of job, or frameworks, than those of the log."""
    head, clauses = _clauses(person, kinds_of)
    return "".join([head, *(text for one, text in clauses if one["kind"] in told)])


def commands_of_others(named: Sequence[str]) -> list[str]:
    """Beginnings of the commands of launchers that the log does not show, if it shows one."""
    return [
        start
        for launcher, starts in LAUNCHERS.items()
        if named and launcher not in named
        for start in starts
    ]


def first_driver(gpus: Sequence[str]) -> str | None:
    """The oldest driver that serves all these GPUs, as far as the catalogue has their
    architecture's first driver."""
    needed = [
        first for gpu in gpus if (first := _first_of_architecture().get(_architecture(gpu) or ""))
    ]
    return max(needed, key=lambda version: [int(part) for part in version.split(".")], default=None)


def _architecture(gpu: str) -> str | None:
    bare = _BARE.sub("", gpu).upper()
    found = [
        row["architecture"]
        for row in table("gpu_models").values()
        if bare in row["model"].upper() or row["model"].upper() in bare
    ]
    return (
        found[0]
        if found
        else "blackwell"
        if re.match(r"RTX ?(?:PRO |50\d0)|GB?[123]00\b", bare)
        else None
    )


@cache
def _first_of_architecture() -> dict[str, str]:
    firsts: dict[str, str] = {}
    for row in table("gpu_models").values():
        if first := row.get("first_driver"):
            firsts[row["architecture"]] = min(first, firsts.get(row["architecture"], first))
    return firsts


def experiments_made(facts: Facts) -> list[str]:
    """Ends of the commands that request an experiment which the log shows as made."""
    settings = (one.fields for one in facts.of("setting"))
    return [
        f"the same job with {one['name']}={str(one['value']).strip(QUOTES)}" for one in settings
    ]


def other_accelerator(facts: Facts) -> str | None:
    """The maker of the job's accelerators, if they are not NVIDIA's."""
    named = facts.said("other_accelerator")
    of_nvidia = facts.of("driver_version") or facts.of("nccl_version") or facts.of("gpu")
    return (
        None
        if of_nvidia or not named
        else next(
            (name for name, value in named[0].fields.items() if value), "another maker"
        ).replace("_", " ")
    )


def how_to_raise(frameworks: Sequence[str]) -> dict[str, str]:
    """framework -> the call or option, for the named frameworks and always for torch; for all
    frameworks if none is named."""
    seen = {_FRAMEWORK_NAMES.get(name.lower(), name.lower()) for name in frameworks}
    rows = {row["framework"]: row["how"] for row in table("timeout_settings").values()}
    return {name: how for name, how in rows.items() if name == "torch" or not seen or name in seen}
