"""What nvidia-smi prints of GPUs (its table, -q as text and XML, --query-gpu as CSV), as the facts
that the collector reads from NVML, each with its line; and what the rules find in them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from statistics import multimode
from typing import Any

from unhang.audit.rules.compiled_catalogue import Catalogue
from unhang.audit.rules.engine import Engine
from unhang.audit.rules.example_nodes import example_node
from unhang.audit.rules.examples import catalogue_view
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.schemas.shapes import Shape, fact_shapes
from unhang.jobs.diagnose.looked import PrintedFault
from unhang_node.base.nvml.gpu_fields import sysfs_address
from unhang_node.base.nvml.names import THROTTLE_REASONS

# a field of a GPU in the facts, then the names that nvidia-smi has for it: columns of --query-gpu,
# headings of -q joined by dots, tags of -q -x
NAMES = """
error                   error
uuid                    uuid gpu_uuid
model                   name gpu_name product_name
pci_address             pci.bus_id gpu_bus_id gpu
vbios                   vbios_version
serial                  serial gpu_serial serial_number
persistence             persistence_mode
compute_mode            compute_mode
recovery_action         gpu_recovery_action
mig.enabled             mig.mode.current mig_mode.current mig_mode.current_mig
mig.pending             mig.mode.pending mig_mode.pending mig_mode.pending_mig
ecc.enabled             ecc.mode.current ecc_mode.current ecc_mode.current_ecc
ecc.pending             ecc.mode.pending ecc_mode.pending ecc_mode.pending_ecc
ecc.uncorrected_volatile   volatile_uncorr_ecc ecc.errors.uncorrected.volatile.total ecc_errors.volatile.dram_uncorrectable
ecc.uncorrected_aggregate  ecc.errors.uncorrected.aggregate.total ecc_errors.aggregate.dram_uncorrectable
row_remap.corrected     remapped_rows.correctable remapped_rows.correctable_error remapped_rows.remapped_row_corr
row_remap.uncorrected   remapped_rows.uncorrectable remapped_rows.uncorrectable_error remapped_rows.remapped_row_unc
row_remap.pending       remapped_rows.pending remapped_rows.remapped_row_pending
row_remap.failed        remapped_rows.failure remapped_rows.remapping_failure_occurred remapped_rows.remapped_row_failure
retired_pages.pending   retired_pages.pending retired_pages.pending_page_blacklist retired_pages.pending_retirement
utilization_percent     utilization.gpu utilization.gpu_util
temperature_c           temperature.gpu temperature.gpu_current_temp temperature.gpu_temp
power_draw_w            power.draw power.draw.instant gpu_power_readings.instantaneous_power_draw
power_limit_w           power.limit gpu_power_readings.current_power_limit
power_limit_default_w   power.default_limit gpu_power_readings.default_power_limit
power_limit_max_w       power.max_limit gpu_power_readings.max_power_limit
memory_total_mib        memory.total fb_memory_usage.total
memory_used_mib         memory.used fb_memory_usage.used
clocks.sm_mhz           clocks.sm clocks.current.sm clocks.sm_clock
clocks.sm_max_mhz       clocks.max.sm max_clocks.sm max_clocks.sm_clock
pcie.generation_now     pcie.link.gen.current pcie.link.gen.gpucurrent pci.gpu_link_info.pcie_generation.current pci.pci_gpu_link_info.pcie_gen.current_link_gen
pcie.generation_max     pcie.link.gen.max pci.gpu_link_info.pcie_generation.max pci.pci_gpu_link_info.pcie_gen.max_link_gen
pcie.width_now          pcie.link.width.current pci.gpu_link_info.link_width.current pci.pci_gpu_link_info.link_widths.current_link_width
pcie.width_max          pcie.link.width.max pci.gpu_link_info.link_width.max pci.pci_gpu_link_info.link_widths.max_link_width
fabric.state            fabric.state
fabric.status           fabric.status
"""  # noqa: E501
# bits of NVML's health mask of a fabric: name in -q, the value of a fault, its place
HEALTH = """
fabric.health.bandwidth degraded 0
fabric.health.route_recovery_in_progress true 2
fabric.health.route_unhealthy true 4
fabric.health.access_timeout_recovery true 6
"""
FIELD_OF = {name: line.split()[0] for line in NAMES.splitlines() for name in line.split()[1:]}
FAULTS_OF = {name: (fault, int(at)) for name, fault, at in map(str.split, HEALTH.split("\n")[1:-1])}
MOST_GPUS, FEWEST_NAMES = 64, 2
REASONS_OF_ALL = 6  # columns with reasons of the clocks; with fewer, another one may be active
FRACTIONS = ("_w", "_c", "_mib", "_percent")  # fields whose numbers need not be whole
_QUERY = re.compile(r"--query-gpu[= ](\S+)")
_ROW = re.compile(
    r"\|\s{1,4}(?P<index>\d{1,3})\s+(?P<name>\S.{0,60}?)\s+(?P<persistence_mode>On|Off|N/A)\s*\|\s+"
    r"(?P<gpu>[0-9A-F]{4,8}:[0-9A-F:.]{7})\s+\S+\s*\|(?:\s+(?P<volatile_uncorr_ecc>\S+) \|)?"
)
_REASON = re.compile(
    r"clocks_(?:event|throttle)_reasons\.(?:clocks_\w{5,8}_reason_)?(\w+?)(?:_slowdown|_setting)?"
)
_LOAD = re.compile(
    r"(?:.*?\s(\d{1,5}W) ?/ {0,5}(\d{1,5}W) *\|)?(?: *(\d{1,8}MiB) ?/ *(\d{1,8}MiB) *\|)?"
    r".*?(\d{1,3}%|N/A)\s+\S+\s*\|\s*"
)
OF_LOAD = "power.draw", "power.limit", "memory.used", "memory.total", "utilization.gpu"
_NOT_KNOWN = re.compile(r"not known \([^()]{0,80}\), |(?: \(|, )not known \([^()]{0,80}\)(?!, )\)?")
_GPU = re.compile(r"\bGPU (\d{1,3})\b")
_ADDRESS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{7}")
_HEAD = re.compile(r'(?:GPU |\s*<gpu id=")([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{7})')
_ENTRY = re.compile(r"(\s*)([^:]{1,60}?)\s*(?:: (.*))?$")
_TAG = re.compile(r"\s*<(/?)([A-Za-z_]\w{0,60})>(?:([^<]*)</)?")
_NUMBER = re.compile(r"(-?\d{1,12}(?:\.\d{1,6})?)(?:x| ?(?:%|[A-Za-z]{1,4}))?")
_YES_OR_NO = {**dict.fromkeys(("enabled", "yes", "on", "true", "1"), True),
              **dict.fromkeys(("disabled", "no", "off", "false", "0"), False)}  # fmt: skip
IDENTITIES = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "gpu", "index")
OF_HEALTH = ("recovery", "ecc.uncorrected", "row_remap", "retired", "fabric")
_Row = dict[str, tuple[str, int]]  # name -> value as printed, index of its line


def rows_in(lines: Sequence[str]) -> list[_Row]:
    """The GPUs in the output of nvidia-smi, each as {name: (value, index of its line)}. Of several
    samples of a GPU it is the last one, with what slowed it in most of them."""
    readers = (_of_query, _of_report, _of_table)
    samples: dict[str, list[_Row]] = {}
    for at, row in enumerate(row for reader in readers for row in reader(lines)):
        if len(row.keys() & FIELD_OF.keys()) >= FEWEST_NAMES:
            name = next((row[one][0] for one in IDENTITIES if one in row), str(at))
            samples.setdefault(name, []).append(row)
    return [_as_one(rows) for rows in samples.values()][:MOST_GPUS]


def _as_one(samples: Sequence[_Row]) -> _Row:
    last = dict(samples[-1])
    for name in filter(_REASON.fullmatch, last):
        last[name] = multimode([row[name][0] for row in samples if name in row])[-1], last[name][1]
    return last


def read_of(rows: Sequence[_Row]) -> tuple[str, ...]:
    """The names of what was read that may show a fault: not of what tells a GPU from another, nor
    of a load."""
    return tuple(
        dict.fromkeys(
            name
            for row in rows
            for name in row
            if _REASON.fullmatch(name) or FIELD_OF.get(name, "").startswith(OF_HEALTH)
        )
    )


def findings_in(catalogue: Catalogue, rows: Sequence[_Row]) -> Iterator[PrintedFault]:
    """What the rules find in these GPUs. Values in, values out."""
    devices = [_device(at, row) for at, row in enumerate(rows)]
    node = example_node({"gpus": {"count": len(rows), "devices": devices}})
    rules = [
        one
        for one in catalogue.rules
        if one.scope == "node" and any(path[0] == "gpus" for path in one.decision_reads)
    ]
    view = catalogue_view(catalogue.tables, tuple(one.id for one in catalogue.rules))
    for number, judged, texts, _ in Engine(rules, view).judge(node).listed:
        if judged.verdict != "fail":
            continue
        rule, found = rules[number], _NOT_KNOWN.sub("", texts["found"])
        shown = [place for path, _ in judged.evidence for place in _lines_with(path, rows)]
        named = [int(one) for one in _GPU.findall(found)]
        own = [place for at, place in shown if not named or devices[at]["index"] in named]
        places = own or [
            min(place for _, place in row.values())
            for row, one in zip(rows, devices, strict=True)
            if one["index"] in named
        ]
        gpus = named or [devices[at]["index"] for at, _ in shown]
        yield PrintedFault(
            rule.id, judged.severity or rule.severity, rule.row["title"], found,
            texts.get("remedy.person", ""),
            rule.row.get("owner", DEFAULT_OWNER), places[0] if places else 0,
            tuple(dict.fromkeys(f"GPU {one}" for one in gpus)),
            tuple(rule.row["sources"]),
        )  # fmt: skip


def _of_query(lines: Sequence[str]) -> Iterator[_Row]:
    """The rows below a line with names of columns."""
    names: list[str] = []
    for at, line in enumerate(lines):
        asked = _QUERY.search(line)
        cells = next(csv.reader([asked[1] if asked else line], skipinitialspace=True), [])
        heads = [cell.split("[")[0].strip() for cell in cells]
        if len({*heads} & FIELD_OF.keys()) >= FEWEST_NAMES:
            names = heads
        elif names and len(cells) == len(names):
            yield {name: (cell, at) for name, cell in zip(names, cells, strict=True)}


def _of_report(lines: Sequence[str]) -> Iterator[_Row]:
    """The GPUs of -q, by the headings or tags around each value."""
    row: _Row = {}
    above: list[tuple[int, str]] = []
    for at, line in enumerate(lines):
        if head := _HEAD.match(line):
            if row:
                yield row
            row, above = {"gpu": (head[1], at)}, []
        elif row and (entry := _entry(line)):
            depth, name, value = entry
            above = [one for one in above if one[0] < depth]
            path = ".".join([*(one for _, one in above), name])
            if value is None:
                above.append((depth, name))
            else:
                row.setdefault(path, (value, at))
    if row:
        yield row


def _of_table(lines: Sequence[str]) -> Iterator[_Row]:
    """The GPUs of the table without options: three lines each, MIG mode in the third."""
    for at, line in enumerate(lines):
        if not (found := _ROW.match(line)):
            continue
        row = {name: (text, at) for name, text in found.groupdict().items()}
        below, mig = (*lines[at + 1 : at + 3], "", "")[:2]
        if load := _LOAD.fullmatch(below):
            row |= {
                name: (text, at + 1)
                for name, text in zip(OF_LOAD, load.groups(), strict=True)
                if text
            }
        if mig:
            row["mig.mode.current"] = mig.rstrip(" |").rpartition("|")[2], at + 2
        if "ERR!" in line + below:
            shown = f"nvidia-smi cannot read values of GPU {found['index']}"
            row["error"] = shown, at if "ERR!" in line else at + 1
        yield row


def _entry(line: str) -> tuple[int, str, str | None] | None:
    """(depth, name, value or None of a heading) of a line of -q or -q -x."""
    depth = len(line) - len(line.lstrip())
    if tag := _TAG.match(line):
        return None if tag[1] else (depth, tag[2], tag[3])
    found = _ENTRY.match(line)
    if not found or not depth:
        return None
    return depth, re.sub(r"\W+", "_", found[2].strip().lower()), found[3]


def _device(index: int, row: _Row) -> dict[str, Any]:
    shapes = fact_shapes()["gpus"].fields["devices"].item
    own = row.get("index", ("", 0))[0].strip()
    device: dict[str, Any] = {"index": int(own) if own.isdecimal() else index}
    mask = sum(
        (1 if row[name][0].lower() == fault else 2) << place
        for name, (fault, place) in FAULTS_OF.items()
        if name in row and row[name][0] not in ("N/A", "")
    )
    for name, (text, _) in row.items():
        if field := FIELD_OF.get(name):
            _put(device, field, text.strip(), shapes)
    if _ADDRESS.fullmatch(address := device.pop("pci_address", "")):
        device["pci_address"] = sysfs_address(address)
    if "uncorrected_volatile" in (ecc := device.get("ecc", {})):
        ecc.setdefault("enabled", True)
    reasons = {found[1]: row[name][0] for name in row if (found := _REASON.fullmatch(name))}
    active = [
        one for _, one in THROTTLE_REASONS if reasons.get(one.removesuffix("_slowdown")) == "Active"
    ]
    if active or len(reasons) >= REASONS_OF_ALL:
        device.setdefault("clocks", {})["throttle_reasons"] = active
    if fabric := device.get("fabric"):
        fabric["status"] = fabric.get("status", "success").lower()  # as NVML has it
        fabric.update({"health_mask": mask} if mask else {})
    return device


def _put(device: dict[str, Any], field: str, text: str, shape: Shape | None) -> None:
    """Puts a printed value at its place, in the form of the schema; one that was not read is not
    put."""
    *parts, last = field.split(".")
    for part in (*parts, last):
        shape = shape.fields[part] if shape else None
    word, number = re.sub(r"\W+", "_", text.lower()), _NUMBER.fullmatch(text)
    value: object = None if text.strip("[]") in ("N/A", "Not Supported", "") else text
    if shape is None or value is None:
        return
    if shape.kind == "flag":
        value = _YES_OR_NO.get(word)
    elif shape.kind == "number":
        has_parts = last.endswith(FRACTIONS)
        value = number and (float(number[1]) if has_parts else int(number[1].partition(".")[0]))
    elif shape.values:
        value = word if word in shape.values else None
    if value is not None:
        for part in parts:
            device = device.setdefault(part, {})
        device.setdefault(last, value)


def _lines_with(path: str, rows: Sequence[_Row]) -> Iterator[tuple[int, int]]:
    """(GPU, index of the line) of what the output has of a fact."""
    found = re.match(r"gpus\.devices\[(\d+)\]\.?(.*)", path)
    if found and int(found[1]) < len(rows):
        for name, (text, at) in rows[int(found[1])].items():
            is_fault = FAULTS_OF.get(name, ("",))[0] == text.strip().lower()
            reasons = _REASON.fullmatch(name) and found[2].startswith("clocks.throttle")
            is_fault |= bool(reasons and text == "Active")
            if is_fault or FIELD_OF.get(name, "-").startswith(found[2]):
                yield int(found[1]), at
