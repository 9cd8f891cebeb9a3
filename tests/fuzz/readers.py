"""Readers of text from outside, each with complete inputs to damage and the errors that it may raise. Every other error is a fault."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import pickle
import random
import re
import shlex
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import fleets
import yaml

from unhang.audit.judge.documents import InvalidNode, decode_node
from unhang.audit.judge.policy import one_line, policy_faults
from unhang.base.errors import UserError
from unhang.base.nodeset import expand_limit
from unhang.base.plain_pickle import NotPlain, load_plain
from unhang.base.printing import safe_text
from unhang.base.secrets_in_text import without_secrets
from unhang.base.strict_json import NotStrict, parse_strictly
from unhang.base.strict_yaml import YamlFault, parse_yaml
from unhang.base.text import TEMPLATE_MARKS, cell_for_csv, data_for_ansible, visible
from unhang.catalogue import BUILT_IN
from unhang.jobs.diagnose.log_facts import describe, gather_facts
from unhang.jobs.diagnose.logs.reading import Input, kind_of, read_blocks
from unhang.jobs.diagnose.matching.scanning import Sieve, scan_blocks
from unhang.jobs.diagnose.matching.signatures import load_causes, load_signatures
from unhang.jobs.diagnose.ranking import rank_causes
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.fixing import fix_text
from unhang.jobs.lint.linting import lint_text
from unhang.jobs.lint.settings import KINDS
from unhang.prove.smoke.streams import parse_events
from unhang.repair.plan.policy_from_nodes import policy_from_nodes, render_policy
from unhang.show.report.exports import RENDERERS
from unhang.show.report.html import render_page
from unhang.show.report.json import render_json
from unhang.show.report.run import summarise_node
from unhang.show.report.ticket import render_html_ticket, render_markdown_ticket, ticket_blocks
from unhang_node.change.drain.reasons import reason_for
from unhang_node.parse.dpkg import parse_status
from unhang_node.parse.env_files import parse_containers_conf, parse_environment, parse_pam_env_conf, parse_slurm_conf, parse_sshd_setenv
from unhang_node.parse.kernel_log import find_faults

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ODD_VALUES = (None, True, -1, 0, 1e308, 10**40, "", "\0", "x" * 5000, "\ud800", "\x1b[31m", "{{ 7*7 }}", [], {}, [None], {"": None}, "nan", "1:30:00", "010")
ODD_BYTES = (b"\x1b[31m", b"9" * 400, b"\0", "é\u202e".encode(), b"\xff\xfe", b"((((", b"'\"`", b"-9999999999999", b"1e999", b'"\\ud800"', b"[" * 200, b"NaN")
SCRIPT = (
    b"export NCCL_IB_DISABLE=1\nENV NCCL_DEBUG INFO\n", b"- name: NCCL_ALGO\n  value: Ring\n", b"Environment=NCCL_X=1\nNCCL_NET = IB\nunset NCCL_NET\n",
    b"#!/bin/bash\n#SBATCH -N 2\ntorchrun --nproc-per-node 8 train.py\n",
)  # fmt: skip
POLICY = {
    "driver": {"version": "535.154.05", "held": True}, "kernel": {"min": "6.1"}, "gpu": {"count": 8}, "nccl": {"settings": {"NCCL_DEBUG": "WARN"}},
    "limits": {"memlock_bytes": -1}, "waivers": [{"rule": "a-rule", "hosts": ["gpu[001-004]"], "reason": "known", "until": "2027-01-01"}],
}  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """samples: complete inputs; read: the function under test; allowed: errors that it documents; structured: whether samples are JSON trees."""

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
    """The tree with a few of its places dropped, doubled, renamed, nested or given an odd value. Changes `tree`."""
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
        holder[key] = deepcopy(noise.choice(ODD_VALUES))  # so that a later change affects only this case


def case(name: str, number: int) -> bytes:
    """The input for a reader and a number; always the same."""
    reader, noise = READERS[name], random.Random(f"{name}/{number}")
    sample = noise.choice(reader.samples())
    if reader.structured and noise.random() < 0.7:
        return json.dumps(restructured(noise, json.loads(sample)), separators=(",", ":")).encode("utf-8", "surrogatepass")
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
    document = {"schema": "unhang/node/1", "host": "gpu001", "groups": ["training"], "policy": POLICY, "status": "ok", "message": None, "facts": facts}
    return [json.dumps(document, separators=(",", ":")).encode()]


@cache
def _events() -> list[bytes]:
    rows = [
        {"e": "phase_begin", "rank": 0, "host": "a", "phase": "init", "t": 1.0},
        {"e": "collective", "rank": 1, "host": "a", "op": "all_reduce", "time_us": 3},
    ]
    rows += [{"e": "evidence", "rank": 0, "counters": {"GPU 0 replay errors": 3}}, {"e": "node_end", "host": "a", "codes": {"0": 0}}]
    return [b"\n".join(json.dumps(row).encode() for row in rows)]


@cache
def _log_lines() -> list[bytes]:
    return [line.encode() + b"\n" for one in load_signatures() for line in (*one.examples["match"], *one.examples.get("near_miss", ()))]


@cache
def _sieve() -> Sieve:
    return Sieve(load_signatures())


@cache
def _rule_files() -> list[bytes]:
    return [path.read_bytes() for path in sorted((BUILT_IN / "rules").glob("*.yml"))[:6]] + [json.dumps(POLICY).encode()]


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
    facts = gather_facts([scan_blocks(read_blocks(io.BytesIO(data), Input("log")), "log", _sieve())])
    describe(facts)
    rank_causes(facts, load_causes())


def _lint(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for kind in KINDS:
        fixed, _fixes = fix_text(text, kind, Context())
        assert len(fixed.splitlines()) == len(text.splitlines())
        for one in lint_text(text, kind, Context()):
            assert one.line >= 1 and one.why and one.instead


def _read_settings(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for parse in (parse_environment, parse_pam_env_conf, parse_sshd_setenv, parse_slurm_conf, parse_containers_conf):
        parse(text)


HOSTILE = (
    b"5.15.0-91 {{ lookup('ansible.builtin.pipe', 'id') }}", b"{% for x in y %}{# #}\nansible_ssh_common_args: -oProxyCommand=id", b"NVIDIA H100 \x1b]0;x\x07",
    b"'; id; '$(id)`id`", b"=cmd|' /C calc'!A0;@SUM(1)", b"<script>alert(1)</script>", b"Reason=x\nNodeName=evil NodeAddr=203.0.113.9", b"!unsafe &a *b #c: [",
)  # fmt: skip


def _write(data: bytes) -> None:
    """A text of a node in what Ansible, a shell, a spreadsheet, a terminal, Slurm and YAML read: there as data, or not at all."""
    text = data.decode("utf-8", "surrogateescape")
    sections = {"gpus": {"model": text}, "kernel": {"release": text}, "driver": {"loaded": {"flavour": text}}, "host": {text: text}}
    policy = render_policy(policy_from_nodes({"gpu001": sections, text: sections}), [f"from {text}", text])
    assert set(yaml.safe_load(policy)) == {"unhang_policy"}
    assert policy.replace("\n", "").isprintable()
    assert not any(mark in line.partition(" # ")[0] for line in policy.splitlines() if not line.lstrip().startswith("#") for mark in TEMPLATE_MARKS)
    with contextlib.suppress(UserError):
        written = data_for_ansible({"x": [text]})
        assert json.loads(written) == yaml.safe_load(written) == {"x": [text]} and not any(mark in text for mark in TEMPLATE_MARKS)
    shown = visible(text)
    assert shown.isprintable()
    assert shlex.split(shlex.join(["unhang", shown])) == ["unhang", shown]
    assert not [part for part in re.split(r"[;,\t|]", cell_for_csv(shown)) if part.strip()[:1] in ("=", "+", "-", "@")]
    assert json.loads(safe_text(json.dumps({"x": text}, ensure_ascii=False), "ascii")) == {"x": text}
    reason = reason_for("20261120T175745Z-c128066de5", text)
    assert reason.isprintable() and not set("=[]'\"\\") & set(reason)
    masked = without_secrets(text)
    assert without_secrets(masked) == masked


class _Markup(HTMLParser):
    """Tags of a page with the names of their attributes, and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[tuple[str, str]] = set()
        self.scripts: list[str] = []
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        self.tags |= {(tag, name) for name, _ in attrs} | {(tag, "")}

    def handle_data(self, data: str) -> None:
        if self._tag in ("script", "style"):
            self.scripts.append(data)


def _shared(text: str) -> dict[str, str]:
    """What is made of a run in which a node says `text` wherever it can: format -> file."""
    found = fleets.finding(
        "xid-fatal", "gpu007", "critical", text, text, text, owner="vendor", where={"index": 0, "name": text}, remedy={"person": text},
        evidence=[{"path": "a.b", "value": text}],
    )  # fmt: skip
    unread = fleets.finding("a-rule", text, "error", "t", "e", "f", verdict="unknown", missing=[{"path": "gpus", "status": "error", "reason": text}])
    findings = fleets.document([found, unread], {"ok": 1, "failed": 1})
    sections = fleets.sections(text, 2, text, text, text, ports=1)
    nodes = [summarise_node(fleets.node("gpu007", ["all"], sections)), summarise_node(fleets.node(text, [text], None, "failed", text))]
    blocks = list(ticket_blocks(findings, "gpu007", sections, [], [f"tried: {text}"]))
    made = {name: render(findings) for name, render in RENDERERS.items()}
    made |= {"json": render_json(findings), "html": render_page(findings, {}, nodes), "ticket.html": render_html_ticket(blocks)}
    return made | {"ticket.md": render_markdown_ticket(blocks), "commands": "\n".join(cause["command"] for cause in findings["causes"])}


@cache
def _markup_of_plain_text(form: str) -> tuple[set[tuple[str, str]], list[str]]:
    return _markup(_shared("plain")[form])


def _markup(page: str) -> tuple[set[tuple[str, str]], list[str]]:
    markup = _Markup()
    markup.feed(page)
    markup.close()
    return markup.tags, markup.scripts


def _share(data: bytes) -> None:
    """The same in what a browser, a spreadsheet, a CI server, an issue and a shell read of a run."""
    text = data.decode("utf-8", "replace")[:2000]
    made = _shared(text)
    for form in ("html", "ticket.html"):
        tags, scripts = _markup(made[form])
        plain_tags, plain_scripts = _markup_of_plain_text(form)
        assert tags <= plain_tags | {("wbr", "")} and scripts == plain_scripts, f"{form}: {sorted(tags - plain_tags)}"
    for form in ("markdown", "ticket.md"):
        lines = [line for line in made[form].splitlines() if not line.startswith("    ")]  # indented lines are verbatim in Markdown
        assert not [line for line in lines if "<" in line or re.search(r"(?<!\\)\[[^]]*\]\(", line)], form
    for row in csv.reader(io.StringIO(made["csv"])):
        for cell in row:
            assert not [part for part in re.split(r"[;,\t|]", cell) if part.strip()[:1] in ("=", "+", "-", "@")], cell
    ElementTree.fromstring(made["junit"])
    for form in ("json", "sarif"):
        json.loads(made[form])
    for line in made["jsonl"].splitlines():
        json.loads(line)
    for line in made["commands"].splitlines():
        assert shlex.split(line) and line.isprintable()
    for form, file in made.items():
        assert file.replace("\n", "").replace("\r", "").isprintable() or form in ("html", "ticket.html"), form


_PACKAGE = b"Package: libnccl2\nStatus: hold ok installed\nVersion: 2.21.5-1+cuda12.4\nArchitecture: amd64\n\nPackage: nvidia-driver\nStatus: install ok\n\n"
READERS: Mapping[str, Reader] = {
    "strict-json": Reader(_node_files, parse_strictly, (NotStrict,), structured=True),
    "node": Reader(_node_files, _read_node, (InvalidNode,), structured=True),
    "summary": Reader(_node_files, _summarise, (NotStrict,), structured=True),
    "policy": Reader(lambda: [json.dumps(POLICY).encode()], _read_policy, (NotStrict,), structured=True),
    "yaml": Reader(_rule_files, lambda data: parse_yaml(data, "fuzz.yml"), (YamlFault,)),
    "writers": Reader(lambda: list(HOSTILE), _write),
    "shared": Reader(lambda: list(HOSTILE), _share),
    "limit": Reader(lambda: [b"gpu[001-016],login,!gpu[3-4],&b:c"], lambda data: expand_limit(data.decode("utf-8", "replace")), (UserError,)),
    "smoke-events": Reader(_events, lambda data: list(parse_events(data.split(b"\n"), (0, 1)))),
    "pickle": Reader(lambda: [pickle.dumps({"version": "2.3", "entries": [{"seq": 1, "state": "started", "sizes": [[4, 5]]}]}, 2)], load_plain, (NotPlain,)),
    "log": Reader(_log_lines, _read_log),
    "kernel-log": Reader(_log_lines, lambda data: find_faults(data, 1.7e9)),
    "lint": Reader(lambda: list(SCRIPT), _lint),
    "settings-files": Reader(lambda: list(SCRIPT), _read_settings),
    "dpkg": Reader(lambda: [_PACKAGE], lambda data: parse_status(data, ("libnccl", "nvidia"))),
}
