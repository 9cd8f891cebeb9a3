"""The gallery of health: documents of machines without a fault, on which a rule above info may
speak only for a reason that the machine's row gives.

A file of the gallery has `machines`. A machine is another one (`like`; further names there are rows
whose changes are made too) with changes:
  board     GPUs and their links, made from the first GPU of the document: {gpus, nvlinks,
  link_mb_s, …}
  driver, nccl, kernel    another version, wherever it stands in the document
  read      {path: value} from the public outputs that `sources` names
  filled    {path: value} that no output shows, as the platform usually has it
  drop      {path of a list: names} of items that are not there
Everything that neither the machine nor one that it is like has read is filled in. A map is merged
into a map; every other value replaces what was there. A list may be written as {repeat: COUNT,
item: …, vary: {field: [one value each]}}; "{n}" in texts of the item is its number.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.core.run.documents import to_fragment
from unhang.core.strict_yaml import load_yaml
from unhang.judge.rules.examples import judge_fragments
from unhang.judge.rules.node_rules import CatalogueView, Judged, NodeView, judge_rule, node_world
from unhang.judge.rules.rules import Rule

GALLERY = Path(__file__).resolve().parents[1] / "fixtures" / "gallery"
_STEP = re.compile(r"([A-Za-z_0-9]+)((?:\[[^\]]*\])*)$")


@dataclass(frozen=True)
class Machine:
    """document: as the collector gives it. above_info: {rule that may be above info here: the
    reason}."""

    name: str
    says: str
    document: dict[str, Any]
    above_info: Mapping[str, str]


def read_gallery(folder: Path = GALLERY) -> list[Machine]:
    """All machines of a folder, in the order of their files. Raises KeyError for a machine, a path
    or a key that does not exist."""
    rows: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.yml")):
        rows |= load_yaml(path)[0]["machines"]
    documents: dict[str, dict[str, Any]] = {}
    shown = [(name, row) for name, row in rows.items() if not row.get("only_a_base")]
    for name, _ in shown:
        _document(name, rows, documents, folder)
    return [
        Machine(name, row["says"], documents[name], row.get("above_info", {}))
        for name, row in shown
    ]


def applies_to(
    rule: Rule, machines: Sequence[Machine], catalogue: CatalogueView
) -> dict[str, bool]:
    """{machine: whether the rule speaks} of the machines on which a rule decides something: not
    those that it skips or leaves open. A rule that compares nodes is tried on groups of two that
    are alike."""
    found = {}
    for machine in machines:
        verdicts = _verdicts(rule, machine, catalogue)
        if verdicts & {"fail", "pass"}:
            found[machine.name] = "fail" in verdicts
    return found


def _verdicts(rule: Rule, machine: Machine, catalogue: CatalogueView) -> set[str]:
    if rule.scope != "node":
        return {judge_fragments(rule, [machine.document["sections"]] * 2, catalogue)}
    return {one.verdict for one in _judged(rule, machine, catalogue)}


def _judged(rule: Rule, machine: Machine, catalogue: CatalogueView) -> list[Judged]:
    node = NodeView(
        machine.name, ("training",), {}, "ok", "", "", to_fragment(machine.document["sections"])
    )
    return judge_rule(rule, node_world(node, catalogue))


def alarms(rule: Rule, machines: Sequence[Machine], catalogue: CatalogueView) -> list[str]:
    """The healthy machines on which a rule above info speaks without standing on their list."""
    if rule.scope != "node" or rule.severity == "info":
        # that no comparison speaks on machines that are alike is a test's business:
        # tests/sweeps/test_trials.py
        return []
    unlisted = [machine for machine in machines if rule.id not in machine.above_info]
    return [
        machine.name
        for machine in unlisted
        if any(_is_loud(rule, one) for one in _judged(rule, machine, catalogue))
    ]


def _is_loud(rule: Rule, judged: Judged) -> bool:
    return judged.verdict == "fail" and (judged.severity or rule.severity) != "info"


def _document(
    name: str, rows: Mapping[str, dict[str, Any]], made: dict[str, dict[str, Any]], folder: Path
) -> dict[str, Any]:
    if name not in made:
        row = rows[name]
        parts = (
            row["like"]
            if isinstance(row.get("like"), list)
            else [row["like"]]
            if "like" in row
            else []
        )
        document = (
            _document(parts[0], rows, made, folder)
            if parts
            else json.loads((folder / row["document"]).read_text())
        )
        for part in (*(rows[one] for one in parts[1:]), row):
            document = changed(document, {key: part[key] for key in part if key in CHANGES})
        made[name] = document
    return made[name]


def changed(document: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a document with the changes of a row, in the order of CHANGES. Raises KeyError for
    a key or a place that does not exist."""
    result: dict[str, Any] = copy.deepcopy(dict(document))
    if unknown := set(change) - set(CHANGES):
        raise KeyError(f"expected {', '.join(CHANGES)}, found {', '.join(sorted(unknown))}")
    for key, apply in CHANGES.items():
        if key in change:
            apply(result["sections"], copy.deepcopy(change[key]))
    return result


def matching_fields(holder: Any, path: str) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every place that matches a path such as
    gpus.devices[*].pcie.width_now."""
    head, _, rest = path.partition(".")
    step = _STEP.match(head)
    if step is None:
        raise KeyError(path)
    found: list[tuple[Any, Any]] = [(holder, step.group(1))]
    for index in re.findall(r"\[([^\]]*)\]", step.group(2)):
        found = [
            (box[key], number)
            for box, key in found
            for number in (range(len(box[key])) if index == "*" else [int(index)])
        ]
    for box, key in found:
        if rest:
            yield from matching_fields(box[key], rest)
        else:
            yield box, key


def _set(sections: dict[str, Any], values: Mapping[str, Any]) -> None:
    for path, value in values.items():
        for box, key in matching_fields(sections, path):
            old = box.get(key) if isinstance(box, dict) else box[key]
            box[key] = _merged(old, _expanded(copy.deepcopy(value)))


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}


def _expanded(value: Any) -> Any:
    """The value, with each {repeat, item, vary} written out."""
    if isinstance(value, list):
        return [
            one
            for part in value
            for one in (_expanded(part) if _repeats(part) else [_expanded(part)])
        ]
    if not isinstance(value, dict):
        return value
    if not _repeats(value):
        return {key: _expanded(one) for key, one in value.items()}
    numbers = range(value.get("from", 0), value.get("from", 0) + value["repeat"])
    varied = value.get("vary", {})
    return [
        _expanded(
            {
                **_numbered(value["item"], number),
                **{key: these[place] for key, these in varied.items()},
            }
        )
        for place, number in enumerate(numbers)
    ]


def _repeats(value: Any) -> bool:
    return isinstance(value, dict) and "repeat" in value


def _numbered(value: Any, number: int) -> Any:
    if isinstance(value, str):
        return value.replace("{n}", str(number)).replace("{n:02x}", f"{number:02x}")
    if isinstance(value, list):
        return [_numbered(one, number) for one in value]
    return (
        {key: _numbered(one, number) for key, one in value.items()}
        if isinstance(value, dict)
        else value
    )


def _drop(sections: dict[str, Any], names: Mapping[str, list[str]]) -> None:
    for path, gone in names.items():
        for box, key in matching_fields(sections, path):
            box[key] = [
                one
                for one in box[key]
                if (one["name"] if isinstance(one, dict) else one) not in gone
            ]


def _add(sections: dict[str, Any], values: Mapping[str, Any]) -> None:
    for path, items in values.items():
        for box, key in matching_fields(sections, path):
            box[key] = [*(box[key] or []), *_expanded(items)]


def _board(sections: dict[str, Any], board: Mapping[str, Any]) -> None:
    """The GPUs of a node and what connects them. numa and cpus: of each GPU, one for all or a
    list."""
    first, count = sections["gpus"]["devices"][0], board["gpus"]
    devices = [copy.deepcopy(first) for _ in range(count)]
    for index, one in enumerate(devices):
        address = f"{board['pci'][index]}" if "pci" in board else f"0000:{index + 16:02x}:00.0"
        one.update(
            index=index,
            minor=index,
            uuid=f"GPU-{index:08d}-0000-4000-8000-000000000000",
            pci_address=address,
        )
        one.update(numa_node=index * board.get("numa_nodes", 2) // count, **board.get("each", {}))
    sections["gpus"].update(
        count=count, pci_count=count, devices=devices, model=devices[0]["model"]
    )
    sections["interconnect"].update(_connections(devices, board))


def _connections(devices: list[dict[str, Any]], board: Mapping[str, Any]) -> dict[str, Any]:
    links, count = board.get("nvlinks", 0), len(devices)
    errors = {"replay": 0, "recovery": 0, "crc": 0}
    link = {
        "active": True,
        "version": board.get("link_version", "4.0"),
        "remote": board.get("remote", "switch"),
        "remote_pci_address": None,
    }
    pair = {
        "read": board.get("p2p", "ok"),
        "write": None,
        "nvlink": None,
        "atomics": None,
        "topology": board.get("topology", "node"),
        "nvlinks": links,
    }
    return {
        "links": [{"gpu": one["index"], "link": number, **link, "speed_mb_s": board["link_mb_s"],
        "errors": dict(errors)} for one in devices
            for number in range(links)],
        "pairs": [{"a": a, "b": b, **pair} for a in range(count) for b in range(a + 1, count)],
        "by_gpu": [{"gpu": one["index"], "uuid": one["uuid"], "nvlinks": links,
        "nvlinks_active": links, "remote": link["remote"] if links else "none",
            "errors_total": 0} for one in devices],
        "p2p_ok": pair["read"] == "ok",
    }  # fmt: skip


def _nccl(sections: dict[str, Any], version: str) -> None:
    for library in sections["nccl"]["libraries"]:
        library["version"] = version
    for environment in sections["torch"]["environments"]:
        environment["nccl"] = version


def _kernel(sections: dict[str, Any], release: str) -> None:
    kernel = sections["kernel"]
    old = kernel["release"]
    kernel["release"] = kernel["boot"]["default_release"] = release
    for row in kernel["installed"]:
        row.update(release=release, image=f"/boot/vmlinuz-{release}")
    for row in kernel["dkms"]:
        row["kernel"] = release
    on_disk = sections["driver"]["on_disk"]
    if on_disk is not None:
        on_disk.update(kernel=release, path=on_disk["path"].replace(old, release))


def _driver(sections: dict[str, Any], version: str) -> None:
    """Everything of the driver that carries its version: a whole replacement of texts, since
    libraries, packages and paths have it in their names."""
    old = sections["driver"]["loaded"]["version"]
    branch, old_branch = version.split(".")[0], old.split(".")[0]
    for name in ("driver", "fabric_manager", "kernel", "gpus", "packages"):
        sections[name] = _with_text(
            sections[name], ((old, version), (f"-{old_branch}", f"-{branch}"))
        )
    sections["driver"]["branch"] = branch


def _with_text(value: Any, pairs: tuple[tuple[str, str], ...]) -> Any:
    if isinstance(value, str):
        for old, new in pairs:
            value = value.replace(old, new)
        return value
    if isinstance(value, list):
        return [_with_text(one, pairs) for one in value]
    return (
        {key: _with_text(one, pairs) for key, one in value.items()}
        if isinstance(value, dict)
        else value
    )


CHANGES: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "driver": _driver,
    "nccl": _nccl,
    "kernel": _kernel,
    "read": _set,
    "filled": _set,
    "board": _board,
    "cards": _set,
    "drop": _drop,
    "add": _add,
}
