"""Things of a node that should be alike: which of them differs from the others of its node
(`unlike`), and what a node has to compare with its group (`parts`). The table `like_things` names
the things; all their numbers are compared but those that the schema excludes with a reason. Values
in, values out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from ipaddress import ip_address, ip_interface
from typing import Any, NamedTuple

from unhang.core.schemas.shapes import ANY, FLAG, NUMBER, TEXT, Shape, every_fact
from unhang.judge.rules.costs import COSTS
from unhang.judge.rules.distances import distances, median
from unhang.judge.rules.functions import names_chosen
from unhang.judge.rules.syntax import Path, shape_at
from unhang.judge.rules.values import Fact, Unknown

TABLE, IDENTITIES = "like_things", "identities"
UNITS = "like_units"
EVERY = "*"  # stands for every number of a thing that no other row of its list names
SETTING = "="  # for every setting and place of it that no other row compares between nodes
NONE, UNREAD = "none", "not read"
_WORDS = {"True": "yes", "False": "no", "": NONE}
COUNT = "count"  # a field that stands for the number of things with one slot
MOST_PARTS = 512
A_GIB = 1 << 30
BUSY_PERCENT, IDLE_MIB = 80, 1024  # of a GPU at work, and of one without a job
SEVERITY = Shape("text", values=("error", "warning", "info"))
UNLIKE = Shape(
    "object",
    {
        "things": TEXT, "name": TEXT, "field": TEXT, "pci_address": TEXT, "value": ANY,
        "usual": ANY, "others": NUMBER, "severity": SEVERITY, "check": TEXT,
    },
)  # fmt: skip
"""things: the row of the table; name: of the one that differs; usual: what the others have; check:
what to look at, of the row."""
PART = Shape(
    "object",
    {
        "things": TEXT, "field": TEXT, "value": TEXT, "severity": SEVERITY, "check": TEXT,
        "normal": Shape("map", item=NUMBER), "unit": TEXT, "together": FLAG,
        "odd": TEXT, "usual": TEXT,
        "reads": Shape("list", item=TEXT),
    },
)  # fmt: skip
"""value: `name field=value, …` of all things of a row; severity: of the row, or what it has for
a thing at half of its like; check: what to look at besides a setting, "" for nothing; normal: of
counters, how often each may rise in an hour; unit: of numbers, "" where values should be equal;
together: one that a node lacks differs; odd, usual: how people read what differs, "" in what a node
gives; reads: the facts compared."""
MACHINE = frozenset({("node", "boot_id"), ("node", "virtualization", "is_vm")})
CARDS = "NCCL_IB_HCA"  # names differ by design, their number does not
FILES = ("nccl_conf", "user_nccl_conf", "environment", "profile", "systemd", "slurm")
SETTINGS = frozenset(
    {("nccl", "settings", "*", name) for name in ("name", "value", "source")}
    | {("network", "rdma", "*", "name")}
)


class Given(NamedTuple):
    """What one thing has in a field. value: None if it was not read; path: of the fact."""

    value: Any
    path: str


@dataclass(frozen=True)
class Thing:
    """holders: itself, then what holds it, with the path of each."""

    holders: tuple[tuple[Any, str], ...]

    def given(self, name: str, tables: Mapping[str, Any]) -> Given:
        """A field of the thing, of what holds it, or one that is worked out."""
        own, path = self.holders[0]
        if name in _WORKED_OUT:
            sources, work_out = _WORKED_OUT[name]
            # what is worked out of facts that were read has a value, or the thing has no such
            lacks = next((one[0] for one in sources if getattr(own, one[0], None) is None), None)
            return Given(work_out(own, tables), f"{path}.{lacks}" if lacks else "")
        for holder, at in self.holders:
            if hasattr(holder, name.split(".")[0]):
                value = holder
                for part in name.split("."):
                    value = getattr(value, part, None)
                return Given(value, f"{at}.{name}")
        return Given(None, path)


def reads_of(tables: Mapping[str, Any], column: str) -> frozenset[Path]:
    """The paths of all facts that the rows look at that have this column, `within` or `peers`."""
    rows = tables.get(TABLE, {}).values()
    return frozenset(path for row in rows if row.get(column) for path in reads_of_row(row, tables))


def fields_of(row: Mapping[str, Any], tables: Mapping[str, Any]) -> list[str]:
    """What is compared of the things of a row."""
    is_setting = SETTING in row["fields"]
    own = [name for name in row["fields"] if name not in (EVERY, SETTING)]
    if len(own) == len(row["fields"]):
        return own
    beside = [one for one in tables[TABLE].values() if one["list"] == row["list"]]
    named = {
        name for one in beside if one.get("peers") or not is_setting for name in one["fields"]
    } | {*row["but"], *row["slot"].split("+")}
    shape = shape_at(tuple(row["list"].split(".")))
    return own + [
        name
        for name, one in _fields_below(shape.item or shape)
        if name not in named
        and not (one.identity or one.not_compared)
        and (not one.sample if is_setting else one.kind == "number" and not one.counter)
    ]


def _fields_below(shape: Shape, above: str = "") -> Iterator[tuple[str, Shape]]:
    """The fields of a thing, without lists of other things."""
    for name, one in shape.fields.items():
        if one.kind == "object":
            yield from _fields_below(one, f"{above}{name}.")
        elif one.kind != "list" or (one.item and one.item.is_scalar):
            yield above + name, one


@cache
def shape_of_field(things: str, field: str) -> Shape:
    """Of a field of the things of a list, or of a key of a map; ANY for one that is worked out, and
    the list for no field."""
    shape = shape_at(tuple(things.split(".")))
    if not field:
        return shape
    shape = shape.item or shape
    for name in field.split("."):
        if shape.kind != "object":
            return shape
        shape = shape.fields.get(name, ANY)
    return shape


def unit_of(field: str, row: Mapping[str, Any], tables: Mapping[str, Any]) -> str:
    """The unit in which a number is compared, "" for a field whose values should be equal."""
    if EVERY not in row["fields"]:
        return str(row.get("unit", ""))
    unit = field.rpartition("_")[2]
    return unit if unit in tables[UNITS] else "number"


def reads_of_row(row: Mapping[str, Any], tables: Mapping[str, Any]) -> Iterator[Path]:
    outer = tuple(row["list"].split("."))
    inner = (*outer, "*") if shape_at(outer).item is not None else outer
    yield outer
    names = [*row["slot"].split("+"), *row["like"], *map(sorting_field, row["only"])]
    for name in [*names, *fields_of(row, tables), "pci_address"]:
        if name in _WORKED_OUT:
            yield from ((*inner, *path) for path in _WORKED_OUT[name][0])
        else:
            yield from _path_of(inner, tuple(name.split(".")))


def _path_of(inner: Path, names: Path) -> Iterator[Path]:
    """Where a field is: in the thing, else in what holds it; nowhere for one that is counted."""
    for end in range(len(inner), 0, -1):
        if names[0] in shape_at(inner[:end]).fields:
            yield (*inner[:end], *names)
            return


def unlike(sections: Any, tables: Mapping[str, Any], why_null: Any) -> list[Any]:
    """Each thing that differs from the others of its node in a field, as Fact of the shape UNLIKE;
    an Unknown for what was not read."""
    found: list[Any] = []
    for row in tables.get(TABLE, {}).values():
        if row["within"]:
            things, missing = things_of(sections, row, tables, why_null)
            found += missing
            for field in fields_of(row, tables):
                for alike in _sorts(things or [], row["like"], tables, why_null):
                    found += _odd_ones(alike, row, field, tables, why_null)
    return found


def parts(sections: Any, tables: Mapping[str, Any], why_null: Any) -> list[Any]:
    """What a node has in the fields that its group shares, as Fact of the shape PART."""
    found: list[Any] = []
    for row in tables.get(TABLE, {}).values():
        if not row.get("peers") or row["counters"]:
            continue
        things, missing = things_of(sections, row, tables, why_null)
        found += missing
        if missing or things is None or not (things or row["slot"]):
            continue
        fields = fields_of(row, tables)
        if EVERY in row["fields"]:  # settings have a row of their own
            fields = [name for name in fields if shape_of_field(row["list"], name).sample]
        named = [name_of(one, row, tables) for one in things]
        for field, names in _divided(row, fields).items():
            values = sorted(
                value
                for name in names
                for value in _named_values(named, things, row, name, tables, why_null)
            )[:MOST_PARTS]
            unit = unit_of(field, row, tables)
            reads = reads_of_row({**row, "like": names, "fields": []}, tables)
            if values or not unit:
                value = ", ".join(values) or NONE
                of = "" if row["together"] or not is_quiet(row) else f" of {len(things)}"
                found.append(part_of(row, field, value, of, unit=unit, reads=reads))
    return found


def identities(tables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """For each fact that the schema calls unique the rows of the table, as those of like_things;
    the row '*' for a fact that no other row names."""
    rows = tables.get(IDENTITIES, {}).values()
    for path, shape in every_fact():
        if shape.unique:
            list_, _, slot = path.replace("[*]", ".*").rpartition(".")
            named = [row for row in rows if row["field"] == path]
            for row in named or [row for row in rows if row["field"] == EVERY]:
                yield {
                    **row, "list": list_.rstrip(".*"), "slot": slot,
                    "peers": COSTS[shape.unique][0],
                }  # fmt: skip


def reads_of_own(tables: Mapping[str, Any]) -> frozenset[Path]:
    return MACHINE.union(*(reads_of_row(row, tables) for row in identities(tables)))


def own(sections: Any, tables: Mapping[str, Any], why_null: Any) -> list[Any]:
    """What no other machine may have: a Fact of the shape PART for each row of such things, whose
    value ends with what tells machines apart; a `scope|` before a name says among which it has to
    be the only one. odd: what several things of the node have."""
    found: list[Any] = []
    boot, kind = (getattr(sections.node, one, None) for one in ("boot_id", "virtualization"))
    for row in identities(tables):
        things, missing = things_of(
            sections, {**row, "like": row["like"] + row["within"]}, tables, why_null
        )
        found += missing
        holders: dict[str, list[str]] = {}
        for thing in () if kind and kind.is_vm and not row["virtual"] else things or ():
            before = "".join(f"{_text(thing.given(one, tables).value)}|" for one in row["like"])
            value = thing.given(row["slot"], tables).value
            for name in map(_text, value if isinstance(value, list) else [value or 0]):
                if not any(fnmatchcase(name, one) for one in row["none"]):
                    holder = name_of(thing, {**row, "slot": row["name"]}, tables)
                    holders.setdefault(before.replace(" ", "+") + name, []).append(holder)
        if holders:
            odd = ", ".join(
                f"{' and '.join(of)} {name.rpartition('|')[2]}"
                for name, of in holders.items()
                if row["within"] and len(of) > 1
            )
            part = part_of(
                row, row["slot"], f"{' '.join(sorted(holders))} {boot}",
                reads=reads_of_row(row, tables), odd=odd,
            )  # fmt: skip
            found.append(part if boot or odd else why_null("node.boot_id"))
    return found


def _divided(row: Mapping[str, Any], fields: Sequence[str]) -> dict[str, list[str]]:
    """The fields that are one finding, by its name: of a whole section those that cost nothing, and
    those of one kind that do."""
    found: dict[str, list[str]] = {}
    for name in fields:
        is_alone = not row["slot"] and shape_of_field(row["list"], name).costs
        kind = name.split(".")[0] if is_alone else row["things"]
        found.setdefault(kind if is_quiet(row) and COUNT not in fields else name, []).append(name)
    return found


def is_quiet(row: Mapping[str, Any]) -> bool:
    """Whether values of which none is on most nodes are no finding: nodes may be of two sorts."""
    return bool(row) and bool(row["together"] or row["elsewhere"] or SETTING in row["fields"])


def settings(sections: Any, tables: Mapping[str, Any], why_null: Any) -> list[Any]:
    """What a node's files set for NCCL and torch, a Fact of the shape PART for each severity."""
    variables = tables["nccl_variables"]
    rows = getattr(sections.nccl, "settings", None)
    if rows is None:
        return [why_null("nccl.settings")]
    set_: dict[str, dict[str, None]] = {}
    for one in rows:
        known = variables.get(one.name, {})
        if (known.get("must_agree") and one.source != "process") or (
            one.source in FILES and not known.get("per_node")
        ):
            set_.setdefault(one.name, {})[_text(one.value)] = None
        elif one.name == CARDS and one.source in FILES:
            cards = [card.name for card in getattr(sections.network, "rdma", None) or ()]
            chosen = str(len(names_chosen(str(one.value)[:4096], cards)))
            set_.setdefault(f"number of {CARDS}", {})[chosen] = None
    values: dict[str, list[str]] = {severity: [] for severity in map(str, SEVERITY.values)}
    for name, own in sorted(set_.items()):
        severity = variables.get(name, {}).get("must_agree") or "warning"
        values[severity].append(f"{name}={' or '.join(sorted(own))}")
    return [
        part_of(
            {"check": "", "together": True, "things": f"{severity} settings", "peers": severity},
            "settings", ", ".join(own) or NONE, reads=[("nccl", "settings", "*", "value")],
        )
        for severity, own in values.items()
    ]  # fmt: skip


def part_of(
    row: Mapping[str, Any], field: str, value: str, of: str = "", *, reads: Iterable[Path] = (),
    **more: Any,
) -> Fact:  # fmt: skip
    """of: with which nodes it is compared, those that have as many of such things: where one is
    gone, the numbers of the others name other things."""
    part = {
        "things": row["things"], "field": field, "value": value, "severity": row["peers"],
        "check": row["check"], "normal": {}, "unit": "", "together": row["together"],
        "odd": "", "usual": "", "reads": [".".join(path) for path in reads],
    }  # fmt: skip
    return Fact({**part, **more}, PART, f"{row['things']}: {field}{of}")


def is_half(value: Any, usual: Any, row: Mapping[str, Any]) -> bool:
    """Whether the row has a severity for half of the usual value or less, and this is so little."""
    if "half" not in row or not all(isinstance(one, (int, float)) for one in (value, usual)):
        return False
    return bool(0 < value * 2 <= usual and usual >= row["half_of_least"])


def _named_values(
    names: list[str], things: list[Thing], row: Mapping[str, Any], field: str,
    tables: Mapping[str, Any], why_null: Any,
) -> list[str]:  # fmt: skip
    if field == COUNT:
        return [f"{name} {COUNT}={number}" for name, number in Counter(names).items()]
    found: list[str] = []
    for name, one in zip(names, things, strict=True):
        value, path = one.given(field, tables)
        named = " ".join(filter(None, [name, field]))
        if isinstance(value, dict):
            found += [f"{named}.{_text(key)}={_text(one)}" for key, one in value.items()]
        elif value is not None:
            found.append(f"{_text(named)}={_text(value)}")
        elif not path or why_null(path).kind == "absent":
            # a GPU that is lost has no settings, and a node without a service does differ
            is_value = row["together"] or not is_quiet(row)
            found += [f"{named}={NONE}"] if path and is_value else []
        else:
            found.append(f"{named}={UNREAD}")
    return found


def _text(value: Any) -> str:
    """No text has what separates values, or names from values."""
    if isinstance(value, list):
        value = " ".join(str(one) for one in value) or NONE
    if isinstance(value, (int, float)) and value >= A_GIB:  # two memories are never equal
        value = f"{value / A_GIB:.0f} GiB"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return _WORDS.get(text, text).replace(", ", ",").replace("=", ":")


def things_of(
    sections: Any, row: Mapping[str, Any], tables: Mapping[str, Any], why_null: Any
) -> tuple[list[Thing] | None, list[Unknown]]:
    """The things of a row, None without their section; an Unknown for what was not read of a list,
    or of what sorts its items."""
    section, *steps = row["list"].split(".")
    holder = getattr(sections, section, None)
    if holder is None:  # nobody asked for this section
        return None, []
    missing: list[Unknown] = []
    found = [Thing(((holder, section),))]
    for name in (step for step in steps if step != "*"):
        lists = [(one, *one.given(name, tables)) for one in found]
        missing += [why_null(path) for _, values, path in lists if values is None]
        found = [
            Thing(((item, at), *one.holders))
            for one, values, path in lists
            for item, at in _items(values, path)
            if item is not None
        ]
    kept = [one for one in found if all(_is_one(one, wanted, tables) for wanted in row["only"])]
    # without these nobody knows what a thing is to be compared with
    sorting = [(one, sorting_field(wanted)) for one in found for wanted in row["only"]]
    sorting += [(one, name) for one in kept for name in row["like"]]
    given = [one.given(name, tables) for one, name in sorting]
    missing += [why_null(path) for value, path in given if value is None and path]
    return kept, [one for one in missing if one.kind == "unread"][:1]


def sorting_field(wanted: str) -> str:
    return wanted.partition("=")[0].rstrip("!")


def _items(values: Any, path: str) -> list[tuple[Any, str]]:
    if isinstance(values, list):
        return [(item, f"{path}[{place}]") for place, item in enumerate(values)]
    return [(values, path)]


def _is_one(thing: Thing, wanted: str, tables: Mapping[str, Any]) -> bool:
    """wanted: `field=pattern|pattern`, or `field!=pattern`."""
    name, _, values = wanted.partition("=")
    value = thing.given(name.rstrip("!"), tables).value
    is_like = value is not None and any(fnmatchcase(str(value), one) for one in values.split("|"))
    return is_like != name.endswith("!")


def _sorts(
    things: list[Thing], like: list[str], tables: Mapping[str, Any], why_null: Any
) -> list[list[Thing]]:
    """Things that are alike in what makes them comparable; one of which that was not read is
    alone."""
    found: dict[str, list[Thing]] = {}
    for one in things:
        key = repr([
            path if value is None and path and why_null(path).kind == "unread" else value
            for value, path in (one.given(name, tables) for name in like)
        ])  # fmt: skip
        found.setdefault(key, []).append(one)
    return list(found.values())


def _odd_ones(
    alike: list[Thing], row: Mapping[str, Any], field: str, tables: Mapping[str, Any], why_null: Any
) -> list[Any]:
    given = [(one, *one.given(field, tables)) for one in alike] if len(alike) > 1 else []
    lacking = [why_null(path) for _, value, path in given if value is None and path]
    known = [one for one in given if one[1] is not None]
    unit = unit_of(field, row, tables)
    found: list[Any] = [one for one in lacking if one.kind == "unread" and not unit][:1]
    usual, odd = _odd([value for _, value, _ in known], row, unit, tables)
    for place, severity in odd.items():
        thing = known[place][0]
        found.append(unlike_fact(thing, row, field, tables, usual, len(known) - len(odd), severity))
    return found


def unlike_fact(
    thing: Thing, row: Mapping[str, Any], field: str, tables: Mapping[str, Any], usual: Any,
    others: int, severity: str,
) -> Fact:  # fmt: skip
    """others: that have what is usual, 0 for the thing itself in the node's last run."""
    value, path = thing.given(field, tables)
    facts = {
        "things": row["things"], "field": field, "value": value, "usual": usual,
        "name": name_of(thing, row, tables),
        "pci_address": thing.given("pci_address", tables).value,
        "others": others, "severity": severity, "check": row["check"],
    }  # fmt: skip
    return Fact(facts, UNLIKE, path)


def _odd(
    values: Sequence[Any], row: Mapping[str, Any], unit: str, tables: Mapping[str, Any]
) -> tuple[Any, dict[int, str]]:
    """What is usual, and the severity of each value that is not, by its place."""
    if unit:
        far = distances(values, *limits_of(unit, tables)) if values else []
        odd = {place: weight_of(times, row["severity"]) for place, times in enumerate(far) if times}
        return (round(median(values), 1) if odd else None), odd
    usual = _usual(values, row)
    return usual, {
        place: row["half"] if is_half(value, usual, row) else row["severity"]
        for place, value in enumerate(values)
        if usual is not None
        if (value < usual if row["worse"] == "lower" else value != usual)
    }


def limits_of(unit: str, tables: Mapping[str, Any]) -> tuple[float, float, str]:
    """What `distances` takes."""
    row = tables[UNITS][unit]
    return row["least"], row["share"], row["worse"]


def weight_of(times: float, severity: str) -> str:
    """A modest distance is a remark."""
    return severity if times >= 2 else "info"


def name_of(thing: Thing, row: Mapping[str, Any], tables: Mapping[str, Any]) -> str:
    """mlx5_3; GPU 3 where only its number names it; of several slots (`a+b`) 3-5."""
    slots = [thing.given(one, tables).value for one in row["slot"].split("+")]
    name = "-".join(map(str, slots)) if row["slot"] else ""
    if not all(isinstance(one, str) for one in slots) and name:
        name = f"{row['things'].partition(chr(39))[0]} {name}"
    port, link = (getattr(thing.holders[0][0], one, None) for one in ("port", "link"))
    return name + (f"/{port}" if (port or 1) > 1 else "" if link is None else f" link {link}")


def _usual(values: Sequence[Any], row: Mapping[str, Any]) -> Any:
    """What all but one of three and more have, or three quarters; where the row says so, of two or
    of two halves the higher value or the first; else None: nobody is accused."""
    counts = Counter(values).most_common()
    if len(counts) < 2:
        return None
    value, most = counts[0]
    odd = len(values) - most
    if odd < most and (odd == 1 or odd * 4 <= len(values)):
        return value
    if row["split"] == "half" or (row["split"] == "pair" and len(values) == 2):
        return max(values) if row["worse"] == "lower" else values[0]
    return None


# ---- fields that are worked out of others: (the facts below the thing, a function of the thing)


def _board(name: str) -> Any:
    def of_model(gpu: Any, tables: Mapping[str, Any]) -> Any:
        row = tables.get("gpu_models", {}).get(getattr(gpu, "model", None) or "", {})
        return None if getattr(gpu, "error", None) else row.get(name)

    return of_model


def _roce(port: Any) -> list[Any]:
    """Its RoCE v2 addresses over IPv4."""
    return [
        one
        for one in getattr(port, "gids", None) or ()
        if one.type == "roce_v2" and ":0000:ffff:" in (one.gid or "")
    ]


def _address(port: Any, tables: Mapping[str, Any]) -> Any:
    local = [":ffff:a9fe:" in one.gid for one in _roce(port)]
    return None if not local else "link-local" if all(local) else "of the network"


def _subnet(port: Any, tables: Mapping[str, Any]) -> Any:
    """The prefix of its first address."""
    gids = [one.gid for one in getattr(port, "gids", None) or () if one.index == 0 and one.gid]
    return ":".join(gids[0].split(":")[:4]) if gids else None


def _subnets(interface: Any, tables: Mapping[str, Any]) -> Any:
    """The networks of its addresses over IPv4, None without one."""
    found = {str(ip_interface(one).network) for one in interface.addresses or () if "." in one}
    return sorted(found) or None


def _asks(node: Any, tables: Mapping[str, Any]) -> Any:
    """1 for a node that asks name servers of the internet alone, which do not know names of the
    site, else 0. They are words of a file, and not any word is an address."""
    try:
        return int(
            all(
                ip_address(one).is_global
                for one in getattr(node.name_service, "servers", None) or ["::"]
            )
        )
    except ValueError:
        return None


def _arguments(kernel: Any, tables: Mapping[str, Any]) -> dict[str, str]:
    """The words of the kernel's command line but those that name a disk or a file of the node."""
    found: dict[str, str] = {}
    for word in kernel.cmdline.split():
        name, _, value = word.partition("=")
        if name not in ("root", "BOOT_IMAGE", "initrd", "resume", "UUID"):  # of the disk
            found[name] = f"{found[name]} {value}" if name in found else value or "set"
    return found


def _work(gpu: Any, tables: Mapping[str, Any]) -> Any:
    """idle or busy; None between the two, and for a GPU that is cut into parts."""
    is_cut = gpu.mig is not None and gpu.mig.enabled
    if gpu.error or is_cut or gpu.utilization_percent is None:
        return None
    if gpu.utilization_percent >= BUSY_PERCENT:
        return "busy"
    is_free = not gpu.processes and (gpu.memory_used_mib or 0) < IDLE_MIB
    return "idle" if is_free and gpu.utilization_percent < 5 else None


_GIDS = tuple(("gids", "*", name) for name in ("index", "gid", "type"))
_WORKED_OUT: dict[str, tuple[tuple[Path, ...], Any]] = {
    "work": (
        (
            ("utilization_percent",),
            ("memory_used_mib",),
            ("processes",),
            ("error",),
            ("mig", "enabled"),
        ),
        _work,
    ),
    "board_line": ((("model",), ("error",)), _board("line")),
    "board_form": ((("model",), ("error",)), _board("form")),
    "roce_index": (_GIDS, lambda port, _: next((one.index for one in _roce(port)), None)),
    "address": (_GIDS, _address),
    "subnet": (_GIDS, _subnet),
    "subnets": ((("addresses",),), _subnets),
    "argument": ((("cmdline",),), _arguments),
    "asks the internet alone": ((("name_service", "servers"),), _asks),
    # of lnet's networks: `o2ib0(ibs0),tcp(eth0)` to o2ib and tcp; interfaces have any name
    "transports": (
        (("value",),),
        lambda one, _: re.sub(r"\d*(\(.*?\))?(,|$)", " ", one.value or "").split(),
    ),
}
