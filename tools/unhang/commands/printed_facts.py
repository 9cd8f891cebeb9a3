"""What the tools of a machine print, as the facts that the collector reads, each with its line.

A reader turns lines into rows: an item of the facts (`network.rdma[mlx5_0].ports[1]`), and what was
printed of it, by name. tool_outputs.yml has the fields of names, and what lines say by themselves.
The kernel's lines and the verdicts of health monitors go through the collector's own parsers.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median, multimode
from typing import Any, NamedTuple

from unhang.core.catalogue.own_tables import table
from unhang.core.schemas.shapes import Shape, fact_shapes
from unhang_node.base.nvml.gpu_fields import sysfs_address
from unhang_node.base.nvml.names import THROTTLE_REASONS
from unhang_node.facts.parse.kernel_log import find_faults
from unhang_node.facts.parse.monitors import parse_document
from unhang_node.facts.sections.filesystems import OF_CONTAINERS
from unhang_node.facts.sections.limits import SYSCTLS

# bits of NVML's health mask of a fabric: name in -q, the value of a fault, its place
HEALTH_BITS = """
fabric.health.bandwidth degraded 0
fabric.health.route_recovery_in_progress true 2
fabric.health.route_unhealthy true 4
fabric.health.access_timeout_recovery true 6
"""

OF_GPUS, DRIVER = "gpus.devices[]", "driver_version"
IDENTITIES = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "gpu")
FEWEST_NAMES = 2  # of a GPU, or of a line with names of columns
SLOWED, LOG = "clocks.throttle_reasons", "kernel log"
FIELD_OF: dict[str, dict[str, str]] = defaultdict(dict)
for _path, _named in table("output_names").items():
    _list, _, _field = _path.rpartition("[].")
    FIELD_OF[f"{_list}[]"].update(dict.fromkeys(_named["names"], _field))
_HEADS, _LINES = (
    [(re.compile(pattern, re.M), row) for pattern, row in table(f"output_{kind}").items()]
    for kind in ("heads", "lines")
)
_COLUMNS = {DRIVER, *FIELD_OF[OF_GPUS]}
FIELD_OF["faults"] = {"whole boot": "complete", LOG: "events"}
BITS = {name: (fault, int(at)) for name, fault, at in map(str.split, HEALTH_BITS.split("\n")[1:-1])}
_KEY, _PART = re.compile(r"\[[^\]]*\]"), re.compile(r"(\w+)(?:\[([^\]]*)\])?")
_QUERY = re.compile(r"--query-gpu[= ](\S+)")
_ROW = re.compile(
    r"\|\s{1,4}(?P<index>\d{1,3})\s+(?P<name>\S.{0,60}?)\s+(?P<persistence_mode>On|Off|N/A)\s*\|\s+"
    r"(?P<gpu>[0-9A-F]{4,8}:[0-9A-F:.]{7})\s+\S+\s*\|(?:\s+(?P<volatile_uncorr_ecc>\S+) \|)?"
)
_LOAD = re.compile(  # __ for a dot
    r"(?:\| *\S{1,6} +(?P<temperature__gpu>\d{1,3}C) )?"
    r"(?:.*?\s(?P<power__draw>\d{1,5}W) ?/ {0,5}(?P<power__limit>\d{1,5}W) *\|)?"
    r"(?:.*?\s(?P<memory__used>\d{1,8}MiB) ?/ *(?P<memory__total>\d{1,8}MiB) *\|)?"
    r".*?(?P<utilization__gpu>\d{1,3}%|N/A)\s+(?P<compute_mode>(?:E\. )?\S+)\s*\|\s*"
)
_REASON = re.compile(
    r"clocks_(?:event|throttle)_reasons\.(?:clocks_\w{5,8}_reason_)?(\w+?)(?:_slowdown|_setting)?"
)
_LINK = re.compile(
    r"\s+Link (?P<link>\d{1,3}): (?:(?P<speed>[\d.]+) GB/s|(?P<down><inactive>)"
    r"|(?P<kind>Replay|Recovery|CRC) Errors: (?P<count>\d+))"
)
_ENTRY = re.compile(r"(\s*)([^:]{1,60}?)\s*(?:: *\s*(.*))?$")
_TAG = re.compile(r"\s*<(/?)([A-Za-z_]\w{0,60})>(?:([^<]*)</)?")
_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,6})?) ?([A-Za-z%]{0,4})(?:/sec.*|\(s\))?")
_WORD = re.compile(r"(?:\d+: ?|PORT_)?(\w+?)(?:ializing|ialize)?(?: \(\d+\))?")
_YES_OR_NO = re.compile(r"(enabled|yes|on|true|1|shm|pass_through)|disabled|no|off|false|0|none")
_KERNEL = re.compile(r"Linux version \d|NVRM: |kernel: |\[ *\d+\.\d{6}\] ")
# tests of DCGM whose messages say what they found; some fail on machines that are sound
_OF_SOFTWARE = re.compile(
    r"(?i)denylist|blacklist|nvml lib|cuda (?:main|toolkit)|permissions|persistence|environment"
    r"|graphics proc|fabric manager|software|deployment|nccl"
)
_LINKED = re.compile(
    r" ?(?:GPU(\d{1,2})|\w{3,16})\s+((?:(?:X|NV\d{1,2}|SYS|NODE|PHB|PXB|PIX)\s+){2,64})"
    r"(?:[\d,-]{1,99}\s+(\d{1,3})\s)?"
)
NEAR = "PIX PXB PHB NODE SYS"  # of a card, the nearest first
_COUNT = re.compile(r"  (\S+): +(\d+)")
_CELLS = re.compile(r"\|[ >-]+([^|]*?) *\| ([^|]*?) *\|")
_Values = dict[str, tuple[Any, int]]  # name -> value as printed, index of its line


class Row(NamedTuple):
    """What a tool prints of an item of the facts, or of the facts themselves, path ""."""

    path: str
    values: _Values


def _at(line: int, printed: Mapping[str, Any]) -> _Values:
    return {name: (value, line) for name, value in printed.items()}


class Output(NamedTuple):
    """Lines of a file that are of one machine. places: the index of each in its file."""

    file: str
    places: Sequence[int]
    lines: Sequence[str]


class Printed:
    """What outputs of one machine show together.

    files    in their order
    facts    {section: fields}, as the schema has them
    at       path of a fact -> (file, index of its line)
    names    file, path of a fact with a star for each item -> its name in the output
    clashes  facts that two files show with different values
    """

    def __init__(self, outputs: Sequence[Output]):
        self.files = dict.fromkeys(one.file for one in outputs)
        self.facts: dict[str, Any] = {}
        self.at: dict[str, tuple[str, int]] = {}
        self.names: dict[tuple[str, tuple[str, ...]], str] = {}
        self.clashes: list[str] = []
        self._ids: dict[str, list[set[str]]] = defaultdict(list)
        self._samples: dict[str, list[Any]] = defaultdict(list)
        self._first: dict[tuple[str, str], tuple[Any, str]] = {}
        for one in outputs:
            for reader in READERS:
                for row in reader(one.lines):
                    self._add(row, one)
        gpus = self.facts.setdefault("gpus", {})
        devices = gpus.get("devices", [])
        for device in devices:
            if "uncorrected_volatile" in device.get("ecc", {}):
                device["ecc"].setdefault("enabled", True)
            if "fabric" in device:
                device["fabric"].setdefault("status", "success")
            clocks = device.get("clocks", {})
            if size := device.get(
                "memory_total_mib", clocks.get("sm_max_mhz", clocks.get("memory_mhz"))
            ):  # those of one size are of one model, where the output has no name
                device.setdefault("model", f"GPU of {size:g}")
        if gpus.get("count", 0) > len(devices):  # cut off, or asked for some alone
            shown = f"the output shows {len(devices)} of {gpus['count']} GPUs"
            unread = {"field": "devices", "status": "error", "reason": shown}
            gpus["probe"] = {"status": "ok", "unread": [unread]}
        self.at.pop("gpus.count", None)  # nobody judges it
        gpus["count"] = len(devices) or 2  # none is shown: jobs of several are asked about
        if any("processes" in one for one in devices):  # the table lists those of all GPUs
            devices[:] = [{"processes": [], **one} for one in devices]
        if len(models := {one.get("model") for one in devices}) == 1:
            gpus["model"] = models.pop()

    def _add(self, row: Row, output: Output) -> None:
        kind = _KEY.sub("[]", row.path)
        values = {**row.values, **_together(row.values)} if kind == OF_GPUS else row.values
        fields = {name: _field_of(kind, name) for name in values}
        if kind == OF_GPUS and len([*filter(None, fields.values())]) < FEWEST_NAMES:
            return
        place, item, shape = self._item(row, kind)
        for name, (value, at) in values.items():
            if not (field := fields[name]):
                continue
            path = f"{place}.{field}".lstrip(".")
            shown = self._usual(path, item, value) if field == SLOWED else value
            if put := _put(item, field, shown, shape):
                self.at[path] = output.file, output.places[at]
                self.names[output.file, tuple(_KEY.sub(".*", path).split("."))] = name
                self._compare(path, name, output.file, *put)

    def _compare(self, path: str, name: str, file: str, value: Any, shape: Shape) -> None:
        """Notes a value that another file has otherwise, but one that changes from day to day."""
        first, before = self._first.setdefault((path, name), (value, file))
        if first != value and before != file and not shape.sample:
            self.clashes.append(f"{path} ({first} in {before}, {value} in {file})")

    def _usual(self, path: str, item: dict[str, Any], value: Any) -> Any:
        """What slowed a GPU in most of the samples so far."""
        self._samples[path].append(value)
        item.get("clocks", {}).pop("throttle_reasons", None)
        return multimode(self._samples[path])[-1]

    def _item(self, row: Row, kind: str) -> tuple[str, Any, Shape]:
        """(place, item, its shape) that a row is of; a new one is made."""
        holder: Any = self.facts
        shape, place = Shape("object", fact_shapes()), ""
        for part, key in _PART.findall(row.path):
            shape, place = shape.fields[part], f"{place}.{part}".lstrip(".")
            is_list = shape.kind == "list"
            holder = holder.setdefault(part, [] if is_list else {})
            if is_list and shape.item:
                known, ids = self._ids[place], {key} if key else _ids_of(row)
                number = next(
                    (at for at, own in enumerate(known) if _is_same(own, ids)), len(known)
                )
                place, shape = f"{place}[{number}]", shape.item
                if number == len(known):
                    is_numbered = kind != OF_GPUS or any(map(str.isdigit, ids))
                    known.append(set() if is_numbered else {str(number)})
                    holder.append({"index": number} if kind == OF_GPUS else {})
                known[number] |= ids
                holder = holder[number]
        return place, holder, shape


def _together(values: _Values) -> _Values:
    """What several names of a GPU show together: its fabric's health, what slows its clocks."""
    found: _Values = {}
    reasons = {one[1]: values[name] for name in values if (one := _REASON.fullmatch(name))}
    active = {one: at for one, (text, at) in reasons.items() if text == "Active"}
    mask, at = reasons.get("active", ("", min(active.values(), default=0)))
    known = tuple(
        name
        for bit, name in THROTTLE_REASONS
        if name.removesuffix("_slowdown") in active or (mask[:2] == "0x" and int(mask, 16) & bit)
    )
    if reasons:  # that of the hardware has those of heat and of the power supply below it
        found[SLOWED] = known if known or {"active", "hw"} & reasons.keys() else None, at
    bits = [
        (text.lower() != fault, bit, at)
        for name, (fault, bit) in BITS.items()
        for text, at in [values.get(name, ("N/A", 0))]
        if text != "N/A"
    ]
    if bits:
        mask = sum((1 + is_well) << bit for is_well, bit, _ in bits)
        found["fabric.health_mask"] = mask, min(bits)[2]
    return found


def _ids_of(row: Row) -> set[str]:
    """What tells the GPU of a row apart from others: index, UUID, address on the bus."""
    return {str(row.values[one][0]).strip().lower() for one in IDENTITIES if one in row.values}


def _is_same(own: set[str], ids: set[str]) -> bool:
    addresses, others = ({one for one in of if ":" in one} for of in (own, ids))
    if others and not addresses and not ids - others:
        return True  # the next one that so far had a number alone
    return bool(addresses & others if addresses and others else own & ids)


def _field_of(kind: str, name: str) -> str | None:
    """The field of a name, which in -q may be below more headings."""
    if kind not in FIELD_OF:
        return name
    while name not in FIELD_OF[kind] and name.count(".") > 1:
        name = name.partition(".")[2]
    return FIELD_OF[kind].get(name)


def _put(item: dict[str, Any], field: str, value: Any, shape: Shape) -> tuple[Any, Shape] | None:
    """Puts a value at its place in the form of the schema; that value and its shape, if it was
    read."""
    *parts, last = [field] if shape.kind == "map" else field.split(".")
    for part in (*parts, last):
        shape = (shape.item if shape.kind == "map" else shape.fields[part]) or Shape("any")
    if isinstance(value, str):
        value = _read(value.strip(), last, shape)
    if value is None:
        return None
    for part in parts:
        item = item.setdefault(part, {})
    item[last] = [*value] if isinstance(value, tuple) else value
    return value, shape


def _read(text: str, name: str, shape: Shape) -> Any:
    if text.strip("[]") in ("N/A", "Not Supported", ""):
        return None
    if name == "pci_address":
        return sysfs_address(text if text.count(":") > 1 else f"0:{text}")
    word = re.sub(r"\W+", "_", text.lower().replace("e. ", "exclusive_"))
    if shape.kind == "flag":
        yes_or_no = _YES_OR_NO.fullmatch(word)
        return yes_or_no and bool(yes_or_no[1])
    if shape.kind == "number" and text.startswith("0x"):
        return int(text[2:].partition(" ")[0], 16)
    if shape.kind == "number":
        number = _NUMBER.fullmatch(text.removesuffix("x"))
        if number is None:
            return None
        if name.endswith("_bytes"):
            return int(float(number[1]) * 1024 ** max(" KMGTP".find(number[2][:1].upper()), 0))
        # fields whose numbers need not be whole
        if name.endswith(("_w", "_c", "_mib", "_percent", "_gbps")):
            return float(number[1])
        return int(number[1].partition(".")[0])
    if shape.values:
        return word if word in shape.values else None
    if name in ("state", "physical_state", "status") and (found := _WORD.fullmatch(text)):
        return found[1].lower().replace("_", "")
    return text


def _of_query(lines: Sequence[str]) -> Iterator[Row]:
    """The rows below a line with names of columns, up to a line that is none."""
    names: list[str] = []
    for at, line in enumerate(lines):
        asked = _QUERY.search(line)
        cells = next(csv.reader([asked[1] if asked else line], skipinitialspace=True), [])
        if line.startswith("# gpu ") or names[1:2] == ["pwr"]:  # nvidia-smi dmon
            cells = line.replace("# gpu", "index").split()
        heads = [cell.split("[")[0].strip() for cell in cells]
        if sum(one in _COLUMNS or bool(_REASON.fullmatch(one)) for one in heads) >= FEWEST_NAMES:
            names = heads
        elif names and len(cells) == len(names):
            row = _at(at, dict(zip(names, cells, strict=True)))
            yield Row(OF_GPUS, row)
            yield Row("", {"driver.loaded.version": row[DRIVER]} if DRIVER in row else {})
        elif line and line[0] != "#":
            names = []


def _of_tree(lines: Sequence[str]) -> Iterator[Row]:
    """The items with a heading each: GPUs of -q and -x by the headings or tags around each value,
    RDMA devices and their ports, counters of an interface."""
    path = base = ""
    values: _Values = {}
    above: list[tuple[int, str]] = []
    for at, line in enumerate(lines):
        entry = _entry(line)
        if head := _head(line, base):
            yield from _rows(path, values)
            path, named = head
            values, above = _at(at, named), []
            base = path.partition("]")[0] + "]" if path.endswith("]") else path
        elif entry is None and line.strip() and not line.lstrip().startswith("<"):
            yield from _rows(path, values)
            path, values, base = "", {}, ""
            above = [(0, _heading(line))]
        elif entry:
            depth, name, value = entry
            above = [one for one in above if one[0] < depth]
            name = ".".join([*(one for _, one in above), name])
            if value is None:
                above.append((depth, entry[1]))
            elif path or ("." in name and _field_of(OF_GPUS, name)):
                values.setdefault(name, (value, at))
    yield from _rows(path, values)


def _head(line: str, base: str) -> tuple[str, dict[str, str]] | None:
    for pattern, row in _HEADS:
        path = row["item"]
        if (base or path[0] != ".") and (found := pattern.match(line)):
            whole = base + path if path[0] == "." else path
            for key in () if path == OF_GPUS else found.groups():
                whole = whole.replace("[]", f"[{key}]", 1)
            return whole, found.groupdict()
    return None


def _rows(path: str, values: _Values) -> Iterator[Row]:
    if path.startswith("network.interfaces"):
        values.setdefault("kind", ("physical", 0))
    if "].ports[" in path and "name" in values:
        yield Row(path.partition(".ports")[0], {"name": values["name"]})
    guid, at = values.get("default_gid") or values.get("port_guid") or ("", 0)
    if guid and values.get("link_layer", ("", 0))[0] == "InfiniBand":
        digits = guid.removeprefix("0x").replace(":", "").zfill(28)[-28:]
        gid = ":".join(["fe80", *(digits[place : place + 4] for place in range(0, 28, 4))])
        yield Row(f"{path}.gids[0]", {"port_guid": ("0", at), "gid": (gid, at)})
    if values:
        yield Row(path or OF_GPUS, values)


def _entry(line: str) -> tuple[int, str, str | None] | None:
    """(depth, name, value or None of a heading) of a line of a tree."""
    depth = len(line) - len(line.lstrip())
    if tag := _TAG.match(line):
        return None if tag[1] else (depth, tag[2], tag[3])
    found = _ENTRY.match(line)
    if not found or not depth:
        return None
    return depth, _heading(found[2]), found[3]


def _heading(text: str) -> str:
    return re.sub(r"\W+", "_", text.strip()[:60].lower())


def _of_table(lines: Sequence[str]) -> Iterator[Row]:
    """The GPUs of the table without options: three lines each, MIG mode in the third."""
    for at, line in enumerate(lines):
        if not (found := _ROW.match(line)):
            continue
        values = _at(at, found.groupdict())
        below, mig = (*lines[at + 1 : at + 3], "", "")[:2]
        if load := _LOAD.fullmatch(below):
            values |= {
                name.replace("__", "."): (text, at + 1) for name, text in load.groupdict().items()
            }
        if mig:
            values["mig.mode.current"] = mig.rstrip(" |").rpartition("|")[2], at + 2
        if "ERR!" in line + below:
            shown = f"nvidia-smi cannot read values of GPU {found['index']}"
            values["error"] = shown, at if "ERR!" in line else at + 1
        yield Row(OF_GPUS, values)


def _of_links(lines: Sequence[str]) -> Iterator[Row]:
    """The NVLinks of nvidia-smi nvlink -s and -e, counted as far as the model has them."""
    head: dict[str, str] = {}
    links: list[tuple[bool, int]] = []
    for at, line in enumerate(lines):
        if named := _head(line, ""):
            head, links = named[1] if "index" in named[1] else {}, []
        if not head or not (found := _LINK.match(line)):
            continue
        gpu, link = head["index"], found["link"]
        values: _Values = {"gpu": (gpu, at), "link": (link, at)}
        values["active"] = not found["down"], at
        if found["kind"]:
            values[f"errors.{found['kind'].lower()}"] = found["count"], at
        else:
            values["speed_mb_s"] = int(float(found["speed"] or 0) * 1000), at
            links.append((not found["down"], at))
            most = table("gpu_models").get(head["name"], {}).get("nvlinks", len(links))
            active, (_, first) = sum(one for one, _ in links), min(links)
            yield _counted(
                first, gpu, uuid=head["uuid"], nvlinks_active=active, nvlinks=min(len(links), most)
            )
        yield Row(f"interconnect.links[{gpu}/{link}]", values)


def _of_topology(lines: Sequence[str]) -> Iterator[Row]:
    """The NUMA nodes of GPUs of nvidia-smi topo -m, and their links, if most are linked alike to
    all. Pairs with a bridge, and a mesh of unlike links, have no number that is the usual one.
    Nothing of those, nor of equal links if some cards are far from all GPUs: which pair should be
    linked, or which card near, is not known.
    """
    found = [(at, row) for at, line in enumerate(lines) if (row := _LINKED.match(f"{line} "))]
    gpus = [(at, row) for at, row in found if row[1]]
    cells = [[int(one[2:]) if one[:2] == "NV" else 0 for one in row[2].split()] for _, row in gpus]
    if len(gpus) < 3 or min(map(len, cells)) < len(gpus):
        return
    own = [median(row[:at] + row[at + 1 : len(cells)]) for at, row in enumerate(cells)]
    usual = multimode(own)[0]
    alike = [at for at, links in enumerate(own) if links == usual]
    far = {min(map(NEAR.find, row[2].split()[: len(gpus)])) for _, row in found if not row[1]}
    linked = (
        usual
        and len(alike) >= 3 * (len(own) - len(alike))
        and all(cells[one][other] == usual for one in alike for other in alike if one != other)
    )
    if (len(far) > 1 and len(alike) == len(own)) or (any(map(any, cells)) and not linked):
        return
    for at, row in gpus:
        yield Row(OF_GPUS, {"index": (row[1], at), "numa_node": (row[3], at)})
    if linked:
        for (at, row), links in zip(gpus, own, strict=True):
            yield _counted(at, row[1], nvlinks=int(usual), nvlinks_active=int(links))


def _counted(at: int, gpu: str, **counted: Any) -> Row:
    """What a line says of the NVLinks of a GPU."""
    return Row(f"interconnect.by_gpu[{gpu}]", _at(at, {"gpu": gpu, **counted}))


def _of_lines(lines: Sequence[str]) -> Iterator[Row]:
    """What lines say by themselves: versions, sizes, settings of the kernel, processes."""
    text = "\n".join(lines)
    for pattern, row in _LINES:
        for found in pattern.finditer(text):
            path = row["fact"]
            own = {name: one for name, one in found.groupdict().items() if one} or {
                path: next(filter(None, found.groups()))
            }
            if "key" in own:
                if own["key"] not in SYSCTLS:
                    continue
                own = {own["key"]: own["value"]}
            place = "" if path in own else path.format(**own)
            own.pop("index", None)  # of the GPU that the place has
            at = text.count("\n", 0, found.start())
            if "use" in row:
                own["use"] = row["use"]
            yield Row(place, _at(at, own))


def _of_df(lines: Sequence[str]) -> Iterator[Row]:
    """File systems of df, also with -i, -h or -T, but images and those of containers; /dev/shm."""
    heads: list[str] = []
    for at, line in enumerate(lines):
        if line.startswith("Filesystem ") and line.rstrip().endswith("Mounted on"):
            heads = line.lower().split()[:-1]
            continue
        cells = line.split(None, max(len(heads) - 1, 0))
        if not heads or len(cells) != len(heads):
            heads = []
            continue
        row = dict(zip(heads, cells, strict=True))
        if "1k-blocks" in row:
            row |= {name: f"{row[name]}K" for name in ("1k-blocks", "used", "available")}
        if (used := row.pop("iuse%", "-").rstrip("%")).isdigit():
            row = {**row, "iuse%": str(100 - int(used))}
            row.pop("used", "")
        device, path = row["filesystem"], row["mounted"].strip()
        if path == "/dev/shm" and "used" in row:  # noqa: S108 -- only its name
            size = row.get("size", row.get("1k-blocks", ""))
            shown = {"limits.shm.size_bytes": size, "limits.shm.used_bytes": row["used"]}
            yield Row("", _at(at, shown))
        elif (device == "overlay" or ":" in device or "/" in device) and not (
            device.startswith("/dev/loop") or f"{path}/".startswith((*OF_CONTAINERS, "/media/"))
        ):
            row["read_only"] = "no"
            yield Row(f"limits.filesystems[{path}]", _at(at, row))


def _of_kernel(lines: Sequence[str]) -> Iterator[Row]:
    """What the collector finds in a kernel log."""
    text = "\n".join(lines)
    if not _KERNEL.search(text):
        return
    found = find_faults(text.encode("utf-8", "replace"))
    if found["complete"]:
        at = text.count("\n", 0, text.rfind("Linux version "))
        yield Row("faults", {"whole boot": (True, at), LOG: ((), at)})
    # lost links are counted by diagnose, which knows more programs that log them
    for event in (one for one in found["events"] if one["kind"] != "link_down"):
        at = text.count("\n", 0, max(text.find(event["line"]), 0))
        yield Row("faults.events[]", _at(at, event))


def _of_monitors(lines: Sequence[str]) -> Iterator[Row]:
    """Verdicts in documents of health monitors that the collector knows, and in DCGM's tables."""
    text = "\n".join(lines)
    try:
        is_json = text.lstrip()[:1] in ("{", "[")
        found = json.loads(text) if is_json else _dcgm_table(lines) or _described_node(lines)
        source, rows = parse_document(found, frozenset())
    except (ValueError, RecursionError):
        return
    for row in (one for one in rows if not _OF_SOFTWARE.match(one["of"])):
        words = json.dumps(row["text"])[1:-1], f"{row['of']}:", f"  {row['of']}  "
        place = max(0, *map(text.rfind, words))
        at = text.count("\n", 0, place)
        values = {**row, "source": source, "path": "its output", source: row["verdict"]}
        yield Row("node.monitors[]", _at(at, values))


def _dcgm_table(lines: Sequence[str]) -> dict[str, Any]:
    """The document of dcgmi health from its table, and of dcgmi diag where no test failed."""
    body: dict[str, Any] = {}
    above: list[tuple[int, dict[str, Any]]] = []
    said: dict[str, Any] = {}
    for found in filter(None, map(_CELLS.match, lines)):
        depth = found.start(1)
        if not found[1]:
            said.setdefault("overflow", []).append(found[2])
            continue
        above = [one for one in above if one[0] < depth]
        said = {"value": found[2], "children": {}}
        (above[-1][1]["children"] if above else body)[found[1]] = said
        above.append((depth, said))
    tests = [
        text.partition(" ")[0]
        for one in body.values()
        for text in (one["value"], *one.get("overflow", ()))
    ]
    if "Pass" in tests and not {"Fail", "Warn"} & {*tests}:
        return {"DCGM Diagnostic": {"test_categories": [{}]}}
    is_known = "Healthy" in body.get("Overall Health", {}).values()
    for one in (one for group in body.values() for one in group["children"].values()):
        # older tables name systems without their errors, and call a card without NVLink failed
        systems = {name: own for name, own in one["children"].items() if name[:6] != "NVLINK"}
        is_known |= bool(systems)
        one["children"] = {"Errors": systems.get("Errors", {"children": systems})}
    return {"body": body} if is_known else {}


def _described_node(lines: Sequence[str]) -> dict[str, Any]:
    """The document of a node from what kubectl describe prints of its conditions and resources."""
    status: dict[str, Any] = {}
    below = status
    for line in lines:
        if line and line[0] != " ":
            below = status.setdefault(line.lower().rstrip(":"), {})
        elif found := _COUNT.fullmatch(line):
            below[found[1]] = found[2]
        elif len(cells := re.split(" {2,}", line.strip())) == 6:
            below[line] = {
                "type": cells[0], "status": cells[1], "reason": cells[4], "message": cells[5]
            }  # fmt: skip
    status["conditions"] = [*status.get("conditions", {}).values()]
    return {"kind": status.get("allocatable") and "Node", "status": status}


READERS = (
    _of_query, _of_tree, _of_table, _of_topology, _of_links, _of_lines, _of_df, _of_kernel,
    _of_monitors,
)  # fmt: skip
