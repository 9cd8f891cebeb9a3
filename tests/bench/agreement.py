"""Prints where the facts and the vendor's own tool disagree about the same GPUs.

    python3 tests/bench/agreement.py node.json nvidia-smi-q.xml

Compares only values that stay the same between two readings. Standard library only: it also runs on
a GPU machine without this project.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree

YES = {"Yes": True, "No": False, "Enabled": True, "Disabled": False}
FABRIC_STATES = {
    "Completed": "completed",
    "In Progress": "in_progress",
    "Not Started": "not_started",
    "N/A": "not_supported",
}
COMPUTE_MODES = {
    "Default": "default",
    "Exclusive_Process": "exclusive_process",
    "Prohibited": "prohibited",
}
MIB_SLACK = 1.0  # nvidia-smi rounds to whole MiB


def text(value):
    """A cell as a fact: None where the tool prints that there is no value."""
    return None if value in (None, "", "N/A", "None") else value


def number(value):
    """The number in front of a unit: "143771 MiB" -> 143771.0; None where there is none."""
    word = (text(value) or "").split(" ")[0].rstrip("x")
    return float(word) if word else None


def yes(value):
    """True, False, or None where the tool prints neither."""
    return YES.get(value)


# field of the schema's gpu, place in the XML, function that reads the text as a value
COMPARED = (
    ("uuid", "uuid", text),
    ("minor", "minor_number", number),
    ("model", "product_name", text),
    ("architecture", "product_architecture", lambda value: value.lower()),
    ("vbios", "vbios_version", text),
    ("board_part_number", "board_part_number", text),
    ("inforom", "inforom_version/img_version", text),
    ("persistence", "persistence_mode", yes),
    ("compute_mode", "compute_mode", COMPUTE_MODES.get),
    ("gsp_version", "gsp_firmware_version", text),
    ("mig.enabled", "mig_mode/current_mig", yes),
    ("mig.pending", "mig_mode/pending_mig", yes),
    ("ecc.enabled", "ecc_mode/current_ecc", yes),
    ("ecc.pending", "ecc_mode/pending_ecc", yes),
    ("ecc.sram_threshold_exceeded", "ecc_errors/aggregate/sram_threshold_exceeded", yes),
    ("row_remap.corrected", "remapped_rows/remapped_row_corr", number),
    ("row_remap.uncorrected", "remapped_rows/remapped_row_unc", number),
    ("row_remap.pending", "remapped_rows/remapped_row_pending", yes),
    ("row_remap.failed", "remapped_rows/remapped_row_failure", yes),
    (
        "row_remap.banks_without_spare",
        "remapped_rows/row_remapper_histogram/row_remapper_histogram_none",
        number,
    ),
    ("pcie.generation_max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", number),
    ("pcie.generation_card", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen", number),
    ("pcie.width_now", "pci/pci_gpu_link_info/link_widths/current_link_width", number),
    ("pcie.width_max", "pci/pci_gpu_link_info/link_widths/max_link_width", number),
    ("memory_total_mib", "fb_memory_usage/total", number),
    ("memory_reserved_mib", "fb_memory_usage/reserved", number),
    ("bar1_total_mib", "bar1_memory_usage/total", number),
    ("power_limit_w", "gpu_power_readings/current_power_limit", number),
    ("power_limit_default_w", "gpu_power_readings/default_power_limit", number),
    ("power_limit_max_w", "gpu_power_readings/max_power_limit", number),
    ("clocks.sm_max_mhz", "max_clocks/sm_clock", number),
    ("clocks.sm_default_mhz", "default_applications_clocks/graphics_clock", number),
    ("clocks.memory_max_mhz", "max_clocks/mem_clock", number),
    ("fabric.state", "fabric/state", FABRIC_STATES.get),
    ("fabric.clique", "fabric/cliqueId", number),
)


def value_at(gpu, path):
    """The fact at a dotted path; None where a part of it is null."""
    for key in path.split("."):
        gpu = None if gpu is None else gpu.get(key)
    return gpu


def alike(ours, theirs):
    """True when both are equal; numbers may differ by the rounding of nvidia-smi."""
    if isinstance(ours, (int, float)) and not isinstance(ours, bool) and isinstance(theirs, float):
        return abs(ours - theirs) <= MIB_SLACK
    return ours == theirs


def address(bus_id):
    """00000000:3B:00.0 -> 0000:3b:00.0, the form of sysfs and of the facts."""
    return bus_id[-12:].lower()


def disagreements(document, xml_text):
    """([lines, one for each value that differs], number of values compared). Raises ValueError when
    a GPU is on one side only."""
    root = ElementTree.fromstring(xml_text)
    theirs = {address(gpu.get("id")): gpu for gpu in root.findall("gpu")}
    ours = {gpu["pci_address"]: gpu for gpu in document["sections"]["gpus"]["devices"]}
    if set(ours) != set(theirs):
        raise ValueError(
            f"the facts know the GPUs {sorted(ours)}, nvidia-smi knows {sorted(theirs)}"
        )
    lines, compared = [], 0
    for place, gpu in sorted(ours.items()):
        for field, xml_path, reading in COMPARED:
            cell = theirs[place].findtext(xml_path)
            if cell is None:  # another release of nvidia-smi uses another name
                continue
            compared += 1
            if not alike(value_at(gpu, field), reading(cell)):
                lines.append(
                    f"GPU {place} {field}: facts {value_at(gpu, field)!r}, nvidia-smi {cell!r}"
                )
    return lines, compared


def main(arguments):
    """Exit code: 0 when all agree, 1 otherwise."""
    with open(arguments[0], encoding="utf-8") as facts, open(arguments[1], encoding="utf-8") as xml:
        lines, compared = disagreements(json.load(facts), xml.read())
    for line in [*lines, f"{compared} values compared with nvidia-smi, {len(lines)} differ"]:
        sys.stdout.write(line + "\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
