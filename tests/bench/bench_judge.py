"""Judges 10,000 node documents of about 50 KB, all different in their samples, and prints a row of
docs/benchmarks.md.

    python tests/bench/bench_judge.py [--nodes N] [--rules N] [--all-differ] [--in-turn]

The documents are written to a temporary folder (500 MB) and go with it. CPU and memory are those of
the child that judges.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from measured_child import measured

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "module_utils"), str(ROOT / "tests" / "support")]

from unhang.core.run.documents import NodeDocument, decode_node  # noqa: E402
from unhang.core.run.run_input import RunInput, read_run_input  # noqa: E402
from unhang.core.schemas.shapes import Shape, fact_shapes  # noqa: E402
from unhang.judge.fleet import judging  # noqa: E402
from unhang.judge.fleet.judging import judge_run  # noqa: E402
from unhang.judge.rules.compiled_catalogue import Catalogue, load_catalogue  # noqa: E402
from unhang.judge.rules.rules import compile_rule  # noqa: E402
from unhang.judge.triage.run_judging import conclusion  # noqa: E402

RECORDING = ROOT / "tests" / "fixtures" / "h200x8" / "nvml.json"
POLICY = {
    "driver": {"version": "580.178.04"},
    "gpu": {"count": 8},
    "nvlink": {"links_per_gpu": 18},
    "pcie": {"width": 16},
}
PROCESS = {"user": "ml", "command": "python3", "where": "host", "use": "compute"}


def base_facts() -> dict[str, Any]:
    """Facts of a healthy InfiniBand node in every section, with the GPUs and links of a recorded
    8×H200 node."""
    import pynvml
    from healthy_nodes import h100_infiniband

    from unhang_node.facts.collect import collect

    facts = h100_infiniband()
    recorded = collect({"nvml_recording": str(RECORDING)}, lambda: pynvml)["sections"]
    facts["sections"] |= {name: recorded[name] for name in ("gpus", "interconnect")}
    # the recorded machine was a virtual one, in which no GPU tells its NUMA node
    for device in recorded["gpus"]["devices"]:
        device["numa_node"] = device["index"] // 4
    return facts


def varied(value: Any, shape: Shape, number: int, chance: random.Random) -> Any:
    """The same facts at another look at another node: samples move by a tenth, names are that
    node's own."""
    if value is None:
        return None
    if shape.kind == "object":
        return {key: varied(one, shape.fields[key], number, chance) for key, one in value.items()}
    if shape.kind == "list" and shape.item is not None:
        return [varied(one, shape.item, number, chance) for one in value]
    if shape.identity and isinstance(value, str) and ":" not in value:
        return f"{value[:-6]}{number:06d}"
    if (
        shape.sample
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value > 9
    ):
        return type(value)(value * chance.uniform(0.9, 1.1))
    return value


def lived(sections: dict[str, Any], number: int, chance: random.Random) -> None:
    """What a fleet at work has beside its samples: addresses and boots of its own on each node;
    jobs on half of them, of which the processes differ; counters that moved on one link in one node
    of twenty, on one port in one of ten; a carrier that came and went on one in fifty."""
    node, network = sections["node"], sections["network"]
    node["boot_id"] = str(uuid.UUID(int=chance.getrandbits(128)))
    for place, one in enumerate(network["interfaces"] or ()):
        if one["kind"] != "loopback":
            one["addresses"] = [f"10.{place}.{number // 250}.{number % 250 + 1}/16"]
    for rail, card in enumerate(network["rdma"] or ()):
        for port in card["ports"]:
            port["lid"] = number * 8 + rail + 1
            for gid in port["gids"]:
                gid["gid"] = f"fe80:0000:0000:0000:{number:04x}:{rail:04x}:0003:0001"
    for section in sections.values():
        section["probe"]["duration_ms"] = round(chance.uniform(0.1, 90), 1)
    if number % 2:
        for device in sections["gpus"]["devices"]:
            device["processes"] = [
                {
                    **PROCESS,
                    "pid": chance.randrange(2000, 4_000_000),
                    "memory_mib": float(chance.randrange(60_000, 80_000)),
                }
            ]
            device["utilization_percent"] = chance.randrange(60, 101)
    if number % 20 == 0:
        chance.choice(sections["interconnect"]["links"])["errors"]["replay"] = chance.randrange(
            1, 4
        )
    if number % 10 == 0 and network["rdma"]:
        chance.choice(network["rdma"])["ports"][0]["counters"]["link_downed"] = chance.randrange(
            1, 4
        )
    if number % 50 == 0:
        network["interfaces"][-1]["carrier_changes"] = chance.randrange(3, 9)


def documents(count: int, all_differ: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """(host, node document), none like another; all_differ: also not in what they are configured
    as."""
    chance = random.Random(1)
    facts, shapes = base_facts(), fact_shapes()
    for number in range(count):
        sections = {
            name: varied(section, shapes[name], number, chance)
            for name, section in facts["sections"].items()
        }
        lived(sections, number, chance)
        if all_differ:
            sections["kernel"] = {**sections["kernel"], "release": f"6.8.0-{number}-generic"}
        host = f"gpu{number:05d}"
        yield host, {
            "schema": "unhang/node/1", "host": host, "groups": ["all", f"rack{number % 40:02d}"],
            "policy": POLICY, "status": "ok", "message": None,
            "facts": {**facts, "sections": sections},
        }  # fmt: skip


def write_run(
    folder: Path,
    count: int,
    all_differ: bool = False,
    change: Callable[[dict[str, Any]], None] = lambda document: None,
) -> int:
    """A run folder; gives the mean size of a node document in bytes. change: what is done to each
    document before."""
    (folder / "nodes").mkdir()
    hosts, size = [], 0
    for host, document in documents(count, all_differ):
        change(document)
        hosts.append(host)
        size += (folder / "nodes" / f"{host}.json").write_text(
            json.dumps(document, separators=(",", ":"))
        )
    run = {
        "schema": "unhang/run/1",
        "id": "bench",
        "started": "2026-01-01T00:00:00Z",
        "finished": None,
        "hosts": hosts,
    }
    (folder / "run.json").write_text(json.dumps(run))
    return size // count


def multiplied(catalogue: Catalogue, count: int) -> Catalogue:
    """The catalogue's rules, copied under new ids until there are `count`."""
    rules = list(catalogue.rules)
    for number in range(max(0, count - len(rules))):
        row = catalogue.rules[number % len(catalogue.rules)].row
        rules.append(compile_rule({**row, "id": f"{row['id']}-copy-{number}"}, catalogue.tables))
    return Catalogue(
        tuple(rules[: max(count, len(catalogue.rules))]), catalogue.tables, catalogue.table_rows, ()
    )


def parsing_s(folder: Path) -> float:
    """Seconds of CPU that reading and parsing the same documents takes, the judge's yardstick: it
    does so too, and no less."""
    started = time.process_time()
    for path in sorted((folder / "nodes").iterdir()):
        decode_node(path.read_bytes())
    return time.process_time() - started


def json_parsing_s(folder: Path) -> float:
    """Seconds of CPU that Python's json takes for the same documents, which it neither types nor
    checks."""
    started = time.process_time()
    for path in sorted((folder / "nodes").iterdir()):
        json.loads(path.read_bytes())
    return time.process_time() - started


def in_turn(folder: Path, rules: Catalogue) -> tuple[float, float, float]:
    """Each document is parsed, then read and judged, in turn, so that other work on the machine
    slows both alike.

    Gives (seconds of CPU of a parsing, of a node, both medians over the last two thirds of the
    nodes; what follows once all are judged, × all parsing).
    """
    run = read_run_input(folder)
    parsed, judged = list[float](), list[float]()
    read = judging.read_nodes

    def nodes(run: RunInput) -> Iterator[NodeDocument]:
        ready = read(run)
        for path in run.files.values():
            began = time.process_time()
            decode_node(path.read_bytes())
            parsed.append(time.process_time() - began)
            began = time.process_time()
            yield next(ready)
            judged.append(time.process_time() - began)

    judging.read_nodes = nodes
    began = time.process_time()
    try:
        judge_run(run, rules, "2026-11-20", conclude=conclusion(rules.rules))
    finally:
        judging.read_nodes = read
    rest = time.process_time() - began - sum(parsed) - sum(judged)
    warm = len(parsed) // 3
    return median(parsed[warm:]), median(judged[warm:]), rest / sum(parsed)


def print_in_turn(folder: Path, catalogues: list[Catalogue]) -> None:
    """One row for each catalogue."""
    sys.stdout.write(
        "| rules | parsing, ms a node | judging | × parsing | what follows, × parsing |\n| --- |"
        " --- | --- | --- | --- |\n"
    )
    for rules in catalogues:
        parsing, judging_s, rest = in_turn(folder, rules)
        sys.stdout.write(
            f"| {len(rules.rules)} | {parsing * 1e3:.3f} | {judging_s * 1e3:.3f} |"
            f" {judging_s / parsing:.2f} | {rest:.2f} |\n"
        )
        sys.stdout.flush()


def judged(folder: Path, count: int) -> dict[str, float]:
    """Judges the run: evaluations, findings."""
    own = load_catalogue()
    rules = multiplied(own, count) if count else own
    head = judge_run(read_run_input(folder), rules, "2026-11-20", conclude=conclusion(rules.rules))
    return {
        "evaluations": head["catalogue"]["evaluations"], "rules": head["catalogue"]["rules"],
        "findings": head["totals"]["fail"],
        "unknown": head["totals"]["unknown"], "invalid": head["nodes"].get("invalid", 0),
    }  # fmt: skip


def main() -> None:
    """Prints one row for the catalogue as it is, and one for twice as many rules, or as many as
    asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument(
        "--rules",
        type=int,
        default=0,
        help=(
            "judge against this many rules too, copies of the catalogue's own (default: twice as"
            " many)"
        ),
    )
    parser.add_argument(
        "--all-differ",
        action="store_true",
        help="every node has a configuration of its own, so that none can be looked up",
    )
    parser.add_argument(
        "--in-turn",
        action="store_true",
        help="parse and judge each document in turn, for a machine that is busy with other work",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as name:
        size = write_run(Path(name), options.nodes, options.all_differ)
        if options.in_turn:
            own = load_catalogue()
            print_in_turn(Path(name), [own, multiplied(own, options.rules or 2 * len(own.rules))])
            return
        parsing = parsing_s(Path(name))
        sys.stdout.write(
            f"parsing the same documents alone: {parsing:.2f} s of CPU; with Python's json:"
            f" {json_parsing_s(Path(name)):.2f} s\n\n"
        )
        columns = (
            "judge",
            "rules",
            "CPU s",
            "× parsing",
            "wall s",
            "peak MB",
            "evaluations",
            "findings",
            "unknown",
        )
        sys.stdout.write(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n")
        for count in (0, options.rules or 2 * len(load_catalogue().rules)):
            row = measured(lambda count=count: judged(Path(name), count))
            assert not row["invalid"], "the bench writes documents that the judge refuses"
            times = (
                f"{row['cpu_s']:.2f} | {row['cpu_s'] / parsing:.1f} | {row['wall_s']:.2f} |"
                f" {row['peak_mb']:.0f}"
            )
            counts = f"{row['evaluations']} | {row['findings']} | {row['unknown']}"
            sys.stdout.write(
                f"| {options.nodes} nodes × {size / 1000:.0f} KB | {row['rules']} | {times} |"
                f" {counts} |\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
