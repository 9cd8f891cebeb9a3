"""Readers of text from outside, each with complete inputs to damage and the errors that it may
raise. Every other error is a fault."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import pickle
import random
import re
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import fleets
from foreign_schemas import junit_faults
from inspected import inspection_of, render_inspection, write_bundle

from fuzz.writers import HOSTILE, SLURM, list_slurm, write
from unhang.act.commands.record_check import _document, _lines
from unhang.act.gate.admission import admission_file, admission_record
from unhang.act.gate.verifying import verify
from unhang.audit.report.html import render_page
from unhang.audit.report.run import summarise_node
from unhang.audit.report.smoke_results import read_smoke_tests
from unhang.audit.report.smoke_view import smoke_view
from unhang.audit.ways.arrivals import write_arrivals
from unhang.audit.ways.documents import read_arrival, split_documents
from unhang.core.baselines import bandwidth_rows, read_baselines
from unhang.core.catalogue.own_files import folders_of
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit
from unhang.core.redact import Mask
from unhang.core.run.documents import InvalidNode, decode_node
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.policy import one_line, policy_faults
from unhang.core.secrets_in_text import masked_document
from unhang.core.signing import GOOD
from unhang.core.smoke_result import document_of, smoke_result
from unhang.core.strict_json import NotStrict, parse_strictly
from unhang.core.strict_yaml import YamlFault, parse_yaml
from unhang.core.table import printed
from unhang.jobs.commands.watch_outputs import Outputs, render_metrics
from unhang.jobs.diagnose.log_facts import describe, gather_facts
from unhang.jobs.diagnose.logs.reading import Input, kind_of, read_blocks
from unhang.jobs.diagnose.matching.scanning import Sieve, scan_blocks
from unhang.jobs.diagnose.matching.signatures import load_causes, load_signatures
from unhang.jobs.diagnose.ranking import rank_causes
from unhang.jobs.diagnose.rendering import facts_in_words
from unhang.jobs.inspect.bundle import checked, is_bundle, read_documents
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text
from unhang.jobs.lint.settings import KINDS
from unhang.jobs.watch.detector import Tick, detect
from unhang.jobs.watch.gpu_table import gpu_table
from unhang.jobs.watch.of_slurm import merged, parsed
from unhang.smoke.bandwidth import expectation
from unhang.smoke.expectations import read_expectations
from unhang.smoke.flight_recorder import summarise
from unhang.smoke.render import render_junit, render_table
from unhang.smoke.result import judge
from unhang.smoke.streams import Stream, parse_events
from unhang_node.base.parse.dpkg import parse_status
from unhang_node.base.parse.values import parse_json
from unhang_node.base.root import Root
from unhang_node.facts.parse.admission import BEGIN, END
from unhang_node.facts.parse.env_files import (
    parse_containers_conf,
    parse_environment,
    parse_pam_env_conf,
    parse_slurm_conf,
    parse_sshd_setenv,
)
from unhang_node.facts.parse.kernel_log import find_faults
from unhang_node.facts.parse.monitors import parse_document, parse_nhc
from unhang_node.facts.sections.admission import read_record

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ODD_VALUES = (
    None,
    True,
    -1,
    0,
    1e308,
    10**40,
    "",
    "\0",
    "x" * 5000,
    "\ud800",
    "\x1b[31m",
    "{{ 7*7 }}",
    [],
    {},
    [None],
    {"": None},
    "nan",
    "1:30:00",
    "010",
)
ODD_BYTES = (
    b"\x1b[31m",
    b"9" * 400,
    b"\0",
    "é\u202e".encode(),
    b"\xff\xfe",
    b"((((",
    b"'\"`",
    b"-9999999999999",
    b"1e999",
    b'"\\ud800"',
    b"[" * 200,
    b"NaN",
)
SCRIPT = (
    b"export NCCL_IB_DISABLE=1\nENV NCCL_DEBUG INFO\n", b"- name: NCCL_ALGO\n  value: Ring\n",
    b"Environment=NCCL_X=1\nNCCL_NET = IB\nunset NCCL_NET\n",
    b"#!/bin/bash\n#SBATCH -N 2\ntorchrun --nproc-per-node 8 train.py\n",
)  # fmt: skip
POLICY = {
    "driver": {"version": "535.154.05", "held": True}, "kernel": {"min": "6.1"},
    "gpu": {"count": 8}, "nccl": {"settings": {"NCCL_DEBUG": "WARN"}},
    "limits": {"memlock_bytes": -1},
    "waivers": [{"rule": "a-rule", "hosts": ["gpu[001-004]"], "reason": "known",
    "until": "2027-01-01"}],
}  # fmt: skip


RECORDS = (
    b'{"header":{"id":"0x7a","rank":1,"n_ranks":2},"metadata":{"hostname":"n1","pid":7,'
    b'"dump_timestamp_us":9},"coll_perf":{"coll":"AllReduce","coll_sn":4}}',
    b'{"schemaVersion":1,"distributedInfo":{"rank":0,"pg_config":[{"pg_name":"3","pg_desc":"tp",'
    b'"ranks":[0,1]}]},"traceEvents":[]}',
)


@dataclass(frozen=True)
class Reader:
    """samples: complete inputs; read: the function under test; allowed: errors that it documents;
    structured: whether samples are JSON trees."""

    samples: Callable[[], list[bytes]]
    read: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...] = ()
    structured: bool = False


def damaged(noise: random.Random, data: bytes) -> bytes:
    """Bytes that are cut, changed, doubled, or have odd ones inserted."""
    damage = bytearray(data)
    for _ in range(noise.randint(0, 6)):
        at = noise.randrange(len(damage) + 1)
        kind = noise.randrange(5)
        if kind == 0:
            del damage[at : at + noise.randint(1, 30)]
        elif kind == 1:
            damage[at:at] = noise.randbytes(noise.randint(1, 12))
        elif kind == 2:
            damage[at:at] = noise.choice(ODD_BYTES)
        elif kind == 3 and len(damage) < 100_000:
            damage = damage * 2
        else:
            damage[at : at + 1] = bytes([noise.randrange(256)])
    return bytes(damage)


def restructured(noise: random.Random, tree: Any) -> Any:
    """The tree with a few of its places dropped, doubled, renamed, nested or given an odd value.
    Changes `tree`."""
    for _ in range(noise.randint(1, 4)):
        holder: Any = tree
        while isinstance(holder, (dict, list)) and holder:
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            key = noise.choice(list(keys))
            below = holder[key]
            if isinstance(below, (dict, list)) and below and noise.random() < 0.85:
                holder = below
                continue
            _change(noise, holder, key)
            break
    return tree


def _change(noise: random.Random, holder: Any, key: Any) -> None:
    kind = noise.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = [holder[key]] * noise.choice((1, 2, 70))
    elif kind == 2 and isinstance(holder, dict):
        holder[noise.choice(("x", "", "é", "a" * 300, str(key) + "_"))] = holder.pop(key)
    elif kind == 3:
        for _ in range(noise.choice((3, 120))):
            holder[key] = {"x": holder[key]}
    else:
        # so that a later change affects only this case
        holder[key] = deepcopy(noise.choice(ODD_VALUES))


def case(name: str, number: int) -> bytes:
    """The input for a reader and a number; always the same."""
    reader, noise = READERS[name], random.Random(f"{name}/{number}")
    sample = noise.choice(reader.samples())
    if reader.structured and noise.random() < 0.7:
        return json.dumps(restructured(noise, json.loads(sample)), separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        )
    return damaged(noise, sample)


def fault_of(name: str, data: bytes) -> Exception | None:
    """The reader's error, if it is not documented; None when there is none."""
    try:
        READERS[name].read(data)
    except READERS[name].allowed:
        return None
    except Exception as problem:
        return problem
    return None


@cache
def _node_files() -> list[bytes]:
    facts = json.loads((FIXTURES / "h200x1" / "node.json").read_bytes())
    facts = facts.get("facts", facts)
    document = {
        "schema": "unhang/node/1",
        "host": "gpu001",
        "groups": ["training"],
        "policy": POLICY,
        "status": "ok",
        "message": None,
        "facts": facts,
    }
    return [json.dumps(document, separators=(",", ":")).encode()]


@cache
def _events() -> list[bytes]:
    rows = [
        {"e": "phase_begin", "rank": 0, "host": "a", "phase": "init", "t": 1.0},
        {"e": "collective", "rank": 1, "host": "a", "op": "all_reduce", "time_us": 3},
    ]
    rows += [
        {"e": "evidence", "rank": 0, "counters": {"GPU 0 replay errors": 3}},
        {"e": "node_end", "host": "a", "codes": {"0": 0}},
    ]
    return [b"\n".join(json.dumps(row).encode() for row in rows)]


@cache
def _log_lines() -> list[bytes]:
    return [
        line.encode() + b"\n"
        for one in load_signatures()
        for line in (*one.examples["match"], *one.examples.get("near_miss", ()))
    ]


@cache
def _sieve() -> Sieve:
    return Sieve(load_signatures())


@cache
def _rule_files() -> list[bytes]:
    return [path.read_bytes() for path in sorted(folders_of("rules")[0].glob("*.yml"))[:6]] + [
        json.dumps(POLICY).encode()
    ]


def _read_node(data: bytes) -> None:
    node = decode_node(data)
    assert isinstance(node.host, str)


def _summarise(data: bytes) -> None:
    document = parse_strictly(data)
    if isinstance(document, dict) and isinstance(document.get("groups", []), list):
        summarise_node(document)


def _read_policy(data: bytes) -> None:
    for fault in policy_faults(parse_strictly(data)):
        assert "\n" not in one_line(fault)


def _read_log(data: bytes) -> None:
    assert kind_of(data) in ("log", "binary", "dump", "empty")
    facts = gather_facts(
        [scan_blocks(read_blocks(io.BytesIO(data), Input("log")), "log", _sieve())]
    )
    assert facts_in_words({**describe(facts), "said_alone": []})
    rank_causes(facts, load_causes())
    Mask(facts.hosts).text(data.decode("utf-8", "replace"))


def _lint(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for kind in KINDS:
        for one in lint_text(text, kind, Context()):
            assert one.line >= 1 and one.why and one.instead


def _read_settings(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for parse in (
        parse_environment,
        parse_pam_env_conf,
        parse_sshd_setenv,
        parse_slurm_conf,
        parse_containers_conf,
    ):
        parse(text)


@cache
def _samples() -> list[bytes]:
    """A trace of two nodes: the header and the first moments of a recorded one."""
    lines = [
        json.loads(line)
        for line in (
            sorted((FIXTURES / "inspect" / "traces").glob("*.jsonl"))[0]
            .read_text()
            .splitlines()[:24]
        )
    ]
    return [
        b"\n".join(
            json.dumps({"asked_as": node, **line}).encode()
            for line in lines
            for node in ("gpu001", "gpu002")
        )
    ]


def _watch(data: bytes) -> None:
    """Samples of other nodes, as `unhang watch` takes, shows and counts them."""
    shown: list[str] = []
    outputs = Outputs(Namespace(textfile=None), {"cluster": "a"}, shown.append)

    def update(tick: Tick, since_s: float) -> None:
        outputs.sampled(tick, since_s)
        if len(shown) < 2:  # a table takes longer than all the rest
            shown.append(printed(gpu_table(tick, since_s, 80), False, False))

    lines = merged(parsed((b"0", line) for line in data.split(b"\n")), 2)
    for event in detect(lines, 2.0, update):
        shown.append(event.why)
    if outputs.last is not None:
        shown.append(render_metrics([outputs], outputs.labels, 1.0))
    assert "".join(shown).replace("\n", "").isprintable()


def _arrive(data: bytes) -> None:
    """Documents that came by --via files or clush, and the run folder that is written of
    them."""
    arrivals = [
        read_arrival("a file", "gpu001", piece) for piece in split_documents(io.BytesIO(data))
    ]
    assert all(one.fault.isprintable() for one in arrivals)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "run" / "nodes").mkdir(parents=True)
        arrived = write_arrivals(
            Path(folder) / "run", None, (("2026-01-01T00:00:00Z", one) for one in arrivals)
        )
        assert all(line.isprintable() for line in (*arrived.lines, *arrived.faults))
        assert sorted(path.name for path in Path(folder).iterdir()) == ["run"]
        for path in (Path(folder) / "run" / "nodes").glob("*.json"):
            assert re.fullmatch(r"[\w.%-]+\.json", path.name, re.ASCII)
            with contextlib.suppress(InvalidNode):
                node = decode_node(path.read_bytes())
                assert (node.groups, node.policy) == ((), {})


@cache
def _evidence() -> list[bytes]:
    return [
        path.read_bytes() for path in sorted((FIXTURES / "inspect" / "evidence").glob("*.json"))[:8]
    ]


def _inspect(data: bytes) -> None:
    """Evidence that somebody sent, as `unhang inspect --evidence` judges and shows it."""
    document = checked(data, "sent.json")
    assert render_inspection(inspection_of([document]), True).isascii()


def _unpack(data: bytes) -> None:
    """A bundle that somebody sent."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sent.tar.gz"
        path.write_bytes(data)
        if is_bundle(path):
            read_documents([path])


@cache
def _bundles() -> list[bytes]:
    documents = [json.loads(one) for one in _evidence()[:2]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hang.tar.gz"
        write_bundle(path, documents, inspection_of(documents))
        packed = path.read_bytes()
    # of the second, damage reaches the archive in it
    return [packed, gzip.compress(gzip.decompress(packed), 0)]


@cache
def _facts_of_h200() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / "h200x8" / "facts.json").read_bytes())
    return document


@cache
def _admissions() -> list[bytes]:
    facts, now = _facts_of_h200(), datetime(2026, 11, 20, tzinfo=UTC)
    gate = {
        "run": "one",
        "severities": ["error"],
        "reference": None,
        "smoke": {"alone": {}, "together": None},
    }
    return [json.dumps(admission_record("gpu001", facts, gate, now, 365)).encode()]


def _admit(data: bytes) -> None:
    """A node's admission record as `unhang preprovision --verify` judges and shows it, with a
    signature that is good, so that what it holds is read too; and as the node's own collector reads
    it."""
    signature = f"{BEGIN}\nU1NIU0lH\n{END}\n"
    text = admission_file(data.decode("utf-8", "replace"), signature, "ssh-ed25519 AAAA the gate")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "etc/unhang").mkdir(parents=True)
        (Path(folder) / "etc/unhang/admission").write_text(text)
        with contextlib.suppress(ValueError):
            read_record(Root([folder]))
    for facts in (None, _facts_of_h200()):
        found = verify(text, "2026-11-21", lambda line, signature: GOOD, facts)
        assert _lines(found, True).replace("\n", "").isprintable()
        json.dumps(_document(found))


def _monitors() -> list[bytes]:
    """What each health monitor leaves on a node, once for each."""
    condition = {"type": "GpuPcieWatch", "status": "True", "reason": "GpuPcieWatchIsNotHealthy"}
    systems = {"children": {"PCIe": {"value": "Warning", "overflow": ["replays"]}}}
    entity = {"0": {"value": "Warning", "children": {"Errors": systems}}}
    test = {"name": "PCIe", "results": [{"gpu_ids": "1", "status": "Fail", "warnings": ["x"]}]}
    part = {"category": "gpu", "entities": ["0"], "max_severity": "CRITICAL", "check_ids": ["x"]}
    state = {"health": "Unhealthy", "reason": "ecc", "time": "2026-11-20T10:00:00Z"}
    documents = (
        {"body": {"Overall Health": {"value": "Warning"}, "GPU": {"children": entity}}},
        {"DCGM Diagnostic": {"test_categories": [{"category": "Integration", "tests": [test]}]}},
        {"overall_severity": "CRITICAL", "affected_components": [part]},
        {"kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": [condition]}},
        [{"component": "disk", "states": [state]}],
        {"nodes": [{"name": "n", "state": ["DRAIN"], "reason": "NHC: x", "reason_changed_at": 1}]},
    )
    return [json.dumps(document).encode() for document in documents]


def _read_monitors(data: bytes) -> None:
    """As the collector does: whatever a document says, its rows fit the schema's limits."""
    text = data.decode("utf-8", "replace")
    rows = parse_nhc(text)
    with contextlib.suppress(ValueError):
        rows = rows + parse_document(parse_json(text), frozenset({"n"}))[1]
    for row in rows:
        assert row["verdict"] in ("ok", "degraded", "failed")
        assert all(value.isprintable() and len(value) <= 300 for value in row.values())


@cache
def _smoke_results() -> list[bytes]:
    return [(FIXTURES / "h200x8" / "smoke.json").read_bytes()]


def _smoke_events(data: bytes) -> None:
    """The result of what two nodes say keeps its schema, whatever they say."""
    lines = data.split(b"\n")
    judged = judge(
        [
            Stream(host, (rank,), tuple(parse_events(lines, (rank,))))
            for rank, host in enumerate("ab")
        ]
    )
    result = document_of(judged)
    assert list(check_schema(result, "smoke-1")) == []
    render_table(smoke_result(masked_document(result)))
    assert junit_faults(render_junit(judged)) == []


def _smoke(data: bytes) -> None:
    """A smoke test's result on the page and in a ticket, and as the policy's rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        path.write_bytes(data)
        tests = read_smoke_tests(Path(folder), [path])
        assert all(one.isprintable() for one in tests.faults)
        render_page(fleets.document([], {"ok": 1}), {}, [], smoke=smoke_view(tests))
        results = list(read_baselines([str(path)]))
        known = read_expectations(bandwidth_rows(results)).bandwidth
        for result in results:
            for row in result.collectives if result.group else ():
                expectation(result.group, row, known)


_PACKAGE = (
    b"Package: libnccl2\nStatus: hold ok installed\nVersion: 2.21.5-1+cuda12.4\nArchitecture:"
    b" amd64\n\nPackage: nvidia-driver\nStatus: install ok\n\n"
)
READERS: Mapping[str, Reader] = {
    "strict-json": Reader(_node_files, parse_strictly, (NotStrict,), structured=True),
    "node": Reader(_node_files, _read_node, (InvalidNode,), structured=True),
    "summary": Reader(_node_files, _summarise, (NotStrict,), structured=True),
    "policy": Reader(
        lambda: [json.dumps(POLICY).encode()], _read_policy, (NotStrict,), structured=True
    ),
    "yaml": Reader(_rule_files, lambda data: parse_yaml(data, "fuzz.yml"), (YamlFault,)),
    "writers": Reader(lambda: list(HOSTILE), write),
    "slurm-inventory": Reader(
        lambda: list(SLURM), list_slurm, (ValueError, UserError), structured=True
    ),
    "evidence": Reader(_evidence, _inspect, (UserError,), structured=True),
    "bundles": Reader(_bundles, _unpack, (UserError,)),
    "admission": Reader(_admissions, _admit, (ValueError,), structured=True),
    "monitors": Reader(_monitors, _read_monitors, (ValueError,), structured=True),
    "smoke-results": Reader(_smoke_results, _smoke, (UserError,), structured=True),
    "arrivals": Reader(_node_files, _arrive, structured=True),
    "watch-samples": Reader(_samples, _watch),
    "limit": Reader(
        lambda: [b"gpu[001-016],login,!gpu[3-4],&b:c"],
        lambda data: expand_limit(data.decode("utf-8", "replace")),
        (UserError,),
    ),
    "smoke-events": Reader(_events, _smoke_events),
    "pickle": Reader(
        lambda: [
            pickle.dumps(
                {"version": "2.3", "entries": [{"seq": 1, "state": "started", "sizes": [[4, 5]]}]},
                2,
            )
        ],
        lambda data: summarise(base64.b64encode(data).decode()),
    ),
    "log": Reader(_log_lines, _read_log),
    "records": Reader(lambda: list(RECORDS), _read_log, structured=True),
    "kernel-log": Reader(_log_lines, lambda data: find_faults(data, 1.7e9)),
    "lint": Reader(lambda: list(SCRIPT), _lint),
    "settings-files": Reader(lambda: list(SCRIPT), _read_settings),
    "dpkg": Reader(lambda: [_PACKAGE], lambda data: parse_status(data, ("libnccl", "nvidia"))),
}
