"""A counter that rises on healthy machines is no evidence (docs/decisions/0014): for each rule above info that reads one, the reason why healthy machines
stay below its limit."""

from __future__ import annotations

from changed_nodes import catalogue

from unhang.core.schemas.shapes import read_schema

WHY = {
    "gpu-ecc-corrected-more-than-neighbours": "a hundred times as many as the other cards of the node, which are as old and work as much",
    "gpu-ecc-uncorrected": "an uncorrectable error ends the process that it hit",
    "gpu-row-remap-failed": "the vendor's criterion for returning a GPU",
    "gpu-sram-threshold-exceeded": "the vendor's own threshold",
    "gpu-retired-pages-many": "DCGM's limit",
    "gpu-retired-pages-double-bit": "a limit with a source",
    "gpu-rows-without-spare": "the next error cannot be remapped",
    "nvlink-recoveries": "a limit with a source; the policy may set another",
    "nvlink-errors-and-recoveries": "ten times the limit of CRC errors and five recoveries of one link together",
    "pcie-replays": "a rate: what a link's bit error rate makes in its uptime",
    "host-memory-uncorrected": "an uncorrected error ends the process or the machine that it hit",
    "host-memory-corrected-often": "more than a thousand, where a healthy module has a handful in its life",
    "rdma-port-errors": "100 and more, and asks to look again",
    "cpu-slowed-by-heat": "a share of the time since boot, which a cooled processor does not reach",
    "rdma-card-pcie-errors": "a fatal error resets the link; healthy cards have none",
    "gpu-pcie-errors": "a fatal error resets the link; healthy GPUs have none",
    "interface-receives-damaged-frames": "a share of all frames, and a thousand at least",
    "gpu-rows-used-up": "as many as can be repaired",
    "kubernetes-gpu-pod-restarts-again-and-again": "ten and more, the last of them within the hour; a new pod counts from 0",
    "interface-link-flaps": "20 and more, where bringing a link up makes a handful",
}


def counters(shape, definitions, path=()):
    """Paths of numbers that only grow, but for events of the kernel log, which are no rate."""
    if "$ref" in shape:
        shape = {**definitions[shape["$ref"].rpartition("/")[2]], **{name: value for name, value in shape.items() if name != "$ref"}}
    if shape.get("x-kind") == "counter":
        yield path
        return
    for name, inside in (shape.get("properties") or {}).items():
        if (*path, name) != ("faults",):
            yield from counters(inside, definitions, (*path, name))
    if isinstance(shape.get("items"), dict):
        yield from counters(shape["items"], definitions, (*path, "*"))


def reads(rule):
    """Paths of facts that a rule compares."""
    return {tuple(path) for part in (rule.when, rule.compare) if part is not None for path in part.reads}


def test_each_rule_above_info_that_reads_a_counter_has_its_reason():
    schema = read_schema("node-facts-1")
    known = {path[-1] for path in counters(schema["properties"]["sections"], schema["$defs"])}
    found = {rule.id for rule in catalogue().rules if rule.row["severity"] != "info" and any(path[-1] in known or known & set(path) for path in reads(rule))}
    assert found == set(WHY)
