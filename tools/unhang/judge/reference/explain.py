"""What the catalogue knows about one thing: a rule, an Xid, a variable, a version, a GPU model.
Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.gpu_verbs import verb_of_xid
from unhang.core.schemas.shapes import policy_shape
from unhang.core.text import flat, listed
from unhang.judge.reference.nearness import KINDS
from unhang.judge.reference.own_topics import cause_lines, cause_rows, causes_titled, fact_lines
from unhang.judge.reference.version_rules import known_faults, rules_that_fire
from unhang.judge.rules.compiled_catalogue import Catalogue
from unhang.judge.rules.costs import COSTS
from unhang.judge.rules.rules import Rule
from unhang_node.base.versions.compare import compare_versions, holds


@dataclass(frozen=True)
class Topic:
    """One thing that the asked word names. lines: (label, text) in reading order; expressions: a
    rule's own, and its texts with their places."""

    kind: str
    id: str
    title: str
    lines: tuple[tuple[str, str], ...]
    confidence: str
    sources: tuple[Mapping[str, str], ...]
    expressions: tuple[tuple[str, str], ...] = ()


Finder = Callable[[Catalogue, str], Iterator[Topic]]

CONDITION = ("applies", "for_each", "compare", "within", "when")
LONGEST_PLACE = 60  # a longer {{ expression }} in a text is shown as {{ … }}
_LOOKS_AT = {
    "node": "each node by itself",
    "group": "the nodes of a group, against each other",
}


def explain(catalogue: Catalogue, asked: str) -> list[Topic]:
    """All topics of a word, best first; [] without any. 'xid 79', 'Xid79' and '79' are the same
    question. NAME=VALUE is read as NAME if nothing is known about that value."""
    word = asked.strip()
    kind, rest = _split(word)
    found = list(_of_kind(catalogue, kind, rest)) if kind is not None else []
    if found or (kind is not None and rest[0].isdigit()):
        return found
    for finder in _FINDERS:
        found += [
            topic
            for topic in finder(catalogue, word)
            if topic.id not in {one.id for one in found if one.kind == topic.kind}
        ]
    name, equals, _value = word.partition("=")
    return found if found or not equals else explain(catalogue, name)


def names_among(words: Sequence[str]) -> list[str]:
    """['NCCL_ALGO', 'xid 79'] from NCCL_ALGO xid 79: a kind and the word after it are one name."""
    names: list[str] = []
    for word in words:
        if names and names[-1].lower() in KINDS:
            names[-1] += f" {word}"
        else:
            names.append(word)
    return names


def _split(word: str) -> tuple[str | None, str]:
    """('xid', '79') of 'xid 79', 'Xid79', 'xid:79' and 'xid-79'; (None, word) without such a
    prefix, as in a rule's id (nccl-2-30)."""
    found = re.fullmatch(
        r"(?i)(xid|sxid|driver|kernel|nccl|torch|pytorch|cuda|cudnn|gpu)"
        r"(?:[\s:=v]*|-(?=[0-9]+(?:\.|$)))([0-9][\w.+-]*|(?<=[\s:=]).+)",
        word,
    )
    return (found.group(1).lower(), found.group(2).strip()) if found else (None, word)


def _of_kind(catalogue: Catalogue, kind: str, word: str) -> Iterator[Topic]:
    if kind in ("xid", "sxid"):
        yield from _codes(catalogue, word, (kind + "s",))
    elif kind in _FINDER_OF:
        yield from _FINDER_OF[kind](catalogue, word)
    else:
        for name in KINDS[kind]:
            yield from _keyed(catalogue, word, name)


# ---- rules, entries


def _rules(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    for rule in catalogue.rules:
        if rule.id == _joined(word):
            yield _rule_topic(rule)


def _entries(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    for row in catalogue.entries:
        if row["id"] == _joined(word):
            yield _entry_topic(row)


def _joined(word: str) -> str:
    """`shm too small` as an id."""
    return "-".join(word.lower().split())


def _rule_topic(rule: Rule) -> Topic:
    row = rule.row
    lines = [
        ("severity", _severity(rule)),
        ("owner", row.get("owner", DEFAULT_OWNER)),
        ("looks at", _LOOKS_AT[rule.scope]),
        ("expected", _places_cut(row["expected"])),
        ("reported as", _places_cut(row["found"])),
        ("remedy", _remedy(row["remedy"])),
    ]
    lines += [
        *_workaround(row),
        *(
            (what, "; ".join(row[name]))
            for what, name in (("symptoms", "symptoms"), ("see also", "also"))
            if name in row
        ),
    ]
    reads = sorted(".".join(path).replace(".*", "[*]") for path in rule.decision_reads)
    expressions = [
        (name, str(row[name]).strip()) for name in (*CONDITION, "expected", "found") if name in row
    ]
    expressions += [("person", row["remedy"]["person"])] if "person" in row["remedy"] else []
    return Topic(
        "rule",
        rule.id,
        row["title"],
        tuple(lines),
        row["confidence"],
        tuple(row["sources"]),
        (*expressions, ("reads", ", ".join(reads))),
    )


def _workaround(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "workaround" in row:
        yield "workaround", row["workaround"]["what"]
        yield "its cost", row["workaround"]["cost"]


def _severity(rule: Rule) -> str:
    of = rule.severity_of
    if "costs" in rule.row:
        return f"{of.source if of else rule.severity}: {COSTS[rule.row['costs']][1]}"
    if of is None:
        return rule.severity
    values = " or ".join(map(str, of.kind.shape.values))
    return f"{values}, as the row of the table has it ({of.source})"


def _places_cut(text: str) -> str:
    """A text without the inside of its long places."""
    return re.sub(
        r"\{\{.*?\}\}",
        lambda place: place[0] if len(place[0]) <= LONGEST_PLACE else "{{ … }}",
        " ".join(text.split()),
    )


def _remedy(remedy: Mapping[str, Any]) -> str:
    """`role gpu_driver with driver.min: 580.65.06; …`"""
    wanted = ", ".join(f"{name}: {value}" for name, value in flat(remedy.get("policy") or {}))
    role = (
        f"role {remedy['role']}" + (f" with {wanted}" if wanted else "")
        if remedy.get("role")
        else ""
    )
    return _places_cut("; ".join(filter(None, (role, remedy.get("person")))))


def _entry_topic(row: Mapping[str, Any]) -> Topic:
    lines = [
        ("known to", row["known_to"]),
        ("why no rule", row["why"]),
        ("symptoms", "; ".join(row["symptoms"])),
        ("remedy", row["remedy"]),
        *_workaround(row),
        *((name, "; ".join(row[name])) for name in ("settings", "models", "says") if name in row),
    ]
    return Topic(
        "entry", row["id"], row["title"], tuple(lines), row["confidence"], tuple(row["sources"])
    )


def _roles(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    """A role by the rules that ask for it."""
    rows = [rule.row for rule in catalogue.rules if rule.row["remedy"].get("role") == word]
    if rows:
        keys = sorted({name for row in rows for name, _ in _proposed(row)})
        lines = (
            ("policy keys", listed(keys, 8) or "none"),
            ("repairs", listed([row["id"] for row in rows], 8)),
            ("how", f"docs/roles.md, roles/{word}/README.md"),
        )
        yield Topic("role", word, f"The role {word}", lines, "documented", ())


def _policy_keys(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    """A key of unhang_policy by the rules that read or propose it."""
    name = word.removeprefix("unhang_policy.")
    path, shape = tuple(name.split(".")), policy_shape()
    for key in path:
        if key not in shape.fields:
            return
        shape = shape.fields[key]
    reading = [
        rule.row
        for rule in catalogue.rules
        if any(read[: len(path) + 1] == ("policy", *path) for read in rule.decision_reads)
    ]
    proposing = [
        rule.row
        for rule in catalogue.rules
        if any(key == name or key.startswith(f"{name}.") for key, _ in _proposed(rule.row))
    ]
    roles = sorted(
        {str(row["remedy"]["role"]) for row in (*reading, *proposing) if row["remedy"].get("role")}
    )
    lines = (
        ("value", f"keys {', '.join(shape.fields)}" if shape.fields else shape.kind),
        ("judged by", listed([row["id"] for row in reading], 8) or "no rule"),
        ("applied by",
        ", ".join(f"role {one}" for one in roles) or "no role that a rule asks for; docs/roles.md lists what each role reads"),  # noqa: E501
        ("proposed by", listed([row["id"] for row in proposing], 8) or "no rule"),
        ("how", "docs/judging.md, docs/roles.md"),
    )  # fmt: skip
    yield Topic("policy", name, "A key of unhang_policy", lines, "documented", ())


def _proposed(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return flat(row["remedy"].get("policy") or {})


# ---- rows of tables


def row_topic(
    catalogue: Catalogue, name: str, key: str, more: tuple[tuple[str, str], ...] = ()
) -> Topic:
    """A row of a table as a topic: every field by its name, with the table's description."""
    table = catalogue.tables[name]
    row, about = table[key], getattr(table, "row", {})
    lines = [
        (field.replace("_", " "), _shown(one))
        for field, value in row.items()
        for one in (value if field == "means" and isinstance(value, (list, tuple)) else [value])
        if field not in ("sources", "source", "confidence", about.get("key"))
    ]
    listed_as = next(one for one in catalogue.table_rows if one["id"] == f"{name}/{key}")
    day = row.get("as_of") or about.get("as_of")
    dated = (("as of", day),) if day and "as_of" not in row else ()
    return Topic(
        name,
        f"{name}/{key}",
        about.get("title", name),
        (*lines, *more, *dated),
        listed_as["confidence"],
        tuple(listed_as["sources"]),
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(one)}" for key, one in value.items())
    return str(value)


def _keyed(catalogue: Catalogue, word: str, name: str) -> Iterator[Topic]:
    """The row with this key; a version may lack its last field: cuda 12.8 is 12.8.0, 12.8.1 …"""
    table = catalogue.tables[name]
    if word in table:
        yield row_topic(catalogue, name, word)
        return
    yield from (
        row_topic(catalogue, name, key) for key in table if key.startswith((word + ".", word + "-"))
    )


def _codes(
    catalogue: Catalogue, word: str, names: tuple[str, ...] = ("xids", "sxids")
) -> Iterator[Topic]:
    for name in names:
        if word not in catalogue.tables[name]:
            continue
        if name == "sxids":
            group = catalogue.tables["sxid_groups"].get(catalogue.tables[name][word]["group"], {})
            yield row_topic(catalogue, name, word, (("what to do", group.get("action", "")),))
        else:
            yield row_topic(catalogue, name, word, tuple(_about_xid(catalogue, word)))


def _about_xid(catalogue: Catalogue, code: str) -> Iterator[tuple[str, str]]:
    for level in catalogue.tables["xid_levels"].values():
        if int(code) in level["codes"]:
            yield "gravity", f"{level['level']}: {level['says']}"
    verb = verb_of_xid(int(code), catalogue.tables)
    yield "one verb", f"{verb}: {catalogue.tables['gpu_verbs'].get(verb, {}).get('says', '')}"
    bucket = catalogue.tables["xid_actions"].get(catalogue.tables["xids"][code].get("immediate"))
    if bucket:
        yield f"{bucket['bucket']} means", bucket["says"]
    for row in catalogue.tables["xid_opinions"].values():
        if str(row["xid"]) == code:
            yield f"{row['who']} says", f"{row['says']} ({row['sources'][0]['url']})"


def _variables(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    """A setting, in every table or row that names it: as key, in a field, or among an entry's
    settings."""
    name = word.upper()
    if not re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
        return
    for table, rows in catalogue.tables.items():
        if not any(part in table for part in ("settings", "variables", "contradictions")):
            continue
        for key, row in rows.items():
            if name == key or any(
                value == name
                for field, value in row.items()
                if field in ("first", "second", "variable", "now", "instead")
            ):
                yield row_topic(catalogue, table, key)
    yield from (_entry_topic(row) for row in catalogue.entries if name in row.get("settings", ()))
    pattern = re.compile(rf"\b{name}\b")
    for rule in catalogue.rules:
        if any(pattern.search(str(rule.row.get(field, ""))) for field in CONDITION):
            yield _rule_topic(rule)


# ---- versions and models


def _because_of(
    catalogue: Catalogue, path: tuple[str, ...], version: str
) -> tuple[tuple[str, str], ...]:
    found = {
        "known faults": known_faults(catalogue, path[0], version),
        "can fire": rules_that_fire(catalogue, path, version),
    }
    return tuple((name, text) for name, texts in found.items() for text in texts or ["none"])


def _drivers(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    """A branch, or a release with its branch and the rules that fire because of its number
    alone."""
    if not re.fullmatch(r"[0-9]{3}(\.[0-9]+){0,2}", word):
        return
    branch = word.split(".")[0]
    firing = _because_of(catalogue, ("driver", "loaded", "version"), word)
    if word in catalogue.tables["driver_versions"]:
        yield row_topic(catalogue, "driver_versions", word, firing)
    elif "." in word and branch in catalogue.tables["driver_branches"]:
        yield Topic(
            "driver_versions",
            f"driver_versions/{word}",
            "A driver release",
            (("note", "no list of releases shows it; it may have come out"), *firing),
            "inferred",
            (),
        )
    if branch in catalogue.tables["driver_branches"]:
        yield row_topic(catalogue, "driver_branches", branch, () if "." in word else firing)


def _kernels(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    """A release by its known faults and by what needs a newer one."""
    if not word[0].isdigit():
        return
    lacks = [
        row
        for row in catalogue.tables["kernel_features"].values()
        if "min_kernel" in row and holds(compare_versions(word, row["min_kernel"], "kernel"), "<")
    ]
    faults = known_faults(catalogue, "kernel", word)
    if lacks or faults:
        lines = [
            *(("known faults", text) for text in faults),
            *(("limits", f"older than {row['min_kernel']}: {row['says']}") for row in lacks),
        ]
        sources = tuple(row["sources"][0] for row in lacks)
        yield Topic(
            "kernel", f"kernel {word}", "A kernel's release", tuple(lines), "documented", sources
        )


def _nccl(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    if not re.fullmatch(r"2\.[0-9]+(\.[0-9]+)?(\.post[0-9]+)?", word):
        return
    wheels = [key for key, row in catalogue.tables["nccl_wheels"].items() if row["nccl"] == word]
    brought = [
        key for key, row in catalogue.tables["torch_wheels"].items() if row.get("nccl") == word
    ]
    if not wheels and not brought and word.count(".") < 2:
        return
    lines = [
        (
            "wheels",
            ", ".join(
                f"{key} (compiled with CUDA {catalogue.tables['nccl_wheels'][key]['cuda']})"
                for key in wheels
            )
            or "none known",
        ),
        ("brought by torch", ", ".join(brought) or "none known"),
        *_because_of(catalogue, ("nccl", "libraries", "*", "version"), word),
    ]
    since = sorted(
        key
        for key, row in catalogue.tables["nccl_variables"].items()
        if str(row.get("since", "")) == word
    )
    lines += [("variables since it", ", ".join(since))] if since else []
    sources = getattr(catalogue.tables["nccl_wheels"], "row", {})["sources"]
    yield Topic(
        "nccl",
        f"nccl/{word}",
        f"NCCL {word}",
        tuple(lines),
        "documented" if wheels or brought else "inferred",
        tuple(sources),
    )


def _versions(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    yield from _drivers(catalogue, word)
    if word in catalogue.tables["torch_wheels"]:
        yield from _keyed(catalogue, word, "torch_wheels")
    if any(row["nccl"] == word for row in catalogue.tables["nccl_wheels"].values()):
        yield from _nccl(catalogue, word)
    if re.fullmatch(r"1?[0-9]\.[0-9](\.[0-9])?", word):
        yield from _keyed(catalogue, word, "cuda_toolkits")


def _gpus(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    """Models whose name contains the word, and the architecture with that name or of the model with
    exactly that name."""
    wanted = word.lower()
    models = catalogue.tables["gpu_models"]
    keys = [key for key, row in models.items() if wanted in (key.lower(), row["model"].lower())]
    parts = [
        key
        for key in models
        if re.search(
            rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z0-9])", key.lower().replace("-", " ")
        )
    ]
    close = re.sub(r"[^a-z0-9]", "", wanted)
    if not parts and re.fullmatch(r"(?=.*[a-z])(?=.*[0-9]).{4,}", close):  # RTX3090, H100SXM5
        parts = [
            key
            for key, row in models.items()
            if close in re.sub(r"[^a-z0-9]", "", f"{key} {row['model']}".lower())
        ]
    yield from (row_topic(catalogue, "gpu_models", key) for key in keys or parts)
    if wanted in catalogue.tables["gpu_architectures"]:
        yield row_topic(catalogue, "gpu_architectures", wanted)


def _any_row(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    """table/key as `unhang catalogue` lists it, or the key of any other table."""
    name, _, key = word.partition("/")
    if key in catalogue.tables.get(name, {}):
        yield row_topic(catalogue, name, key)
        return
    for table, rows in catalogue.tables.items():
        if word in rows and table not in ("xids", "sxids"):
            yield row_topic(catalogue, table, word)


def _facts(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    if found := fact_lines(catalogue, word):
        path, title, lines = found
        yield Topic("fact", path, title, tuple(lines), "", ())


def _causes(catalogue: Catalogue, word: str) -> Iterator[Topic]:
    """A cause by its id, or by a title that diagnose shows: its own, or that of a line."""
    for row in [*cause_rows(_joined(word).replace("-", "_")), *causes_titled(word)]:
        yield Topic(
            "cause",
            row["id"],
            row["title"],
            tuple(cause_lines(row)),
            row["confidence"],
            tuple(row["sources"]),
        )


_FINDER_OF: Mapping[str, Finder] = {
    "driver": _drivers, "kernel": _kernels, "nccl": _nccl, "gpu": _gpus,
}  # fmt: skip
_FINDERS: tuple[Finder, ...] = (
    _rules,
    _entries,
    _causes,
    _roles,
    _policy_keys,
    _gpus,
    _facts,
    _codes,
    _variables,
    _versions,
    _any_row,
)
