"""Texts of nodes and of Slurm in everything that Ansible, a shell, a browser, a spreadsheet or a
terminal reads: there as data, or not at all."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shlex
from argparse import Namespace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import fleets
import yaml

from unhang.act.commands.typed_again import typed_again
from unhang.act.plan.policy_from_nodes import policy_from_nodes, render_policy
from unhang.act.rollout.soak import DEFAULT as SOAK
from unhang.audit.history.changes import FoundChange
from unhang.audit.history.news import news_of
from unhang.audit.history.runs import PastRun
from unhang.audit.report.exports import RENDERERS
from unhang.audit.report.html import render_page
from unhang.audit.report.run import summarise_node
from unhang.audit.report.ticket import render_html_ticket, render_markdown_ticket, ticket_blocks
from unhang.core.ansible.slurm_inventory import inventory_of
from unhang.core.errors import UserError
from unhang.core.json_text import render_json
from unhang.core.printing import safe_text
from unhang.core.secrets_in_text import without_secrets
from unhang.core.text import TEMPLATE_MARKS, cell_for_csv, data_for_ansible, visible
from unhang.smoke.bootstrap import carried, node_arguments, shell_line
from unhang.smoke.node_plans import NodePlan
from unhang.smoke.programs import program_line, program_text
from unhang_node.base.parse.slurm import parse_nodes_json
from unhang_node.change.drain.reasons import reason_for

HOSTILE = (
    b"5.15.0-91 {{ lookup('ansible.builtin.pipe', 'id') }}",
    b"{% for x in y %}{# #}\nansible_ssh_common_args: -oProxyCommand=id",
    b"NVIDIA H100 \x1b]0;x\x07",
    b"'; id; '$(id)`id`", b"=cmd|' /C calc'!A0;@SUM(1)", b"<script>alert(1)</script>",
    b"Reason=x\nNodeName=evil NodeAddr=203.0.113.9", b"!unsafe &a *b #c: [",
)  # fmt: skip


def write(data: bytes) -> None:
    """A text of a node in what Ansible, a shell, a spreadsheet, a terminal, Slurm and YAML read:
    there as data, or not at all."""
    text = data.decode("utf-8", "surrogateescape")
    sections = {
        "gpus": {"model": text},
        "kernel": {"release": text},
        "driver": {"loaded": {"flavour": text}},
        "host": {text: text},
    }
    policy = render_policy(
        policy_from_nodes({"gpu001": sections, text: sections}), [f"from {text}", text]
    )
    assert set(yaml.safe_load(policy)) == {"unhang_policy"}
    assert policy.replace("\n", "").isprintable()
    assert not any(
        mark in line.partition(" # ")[0]
        for line in policy.splitlines()
        if not line.lstrip().startswith("#")
        for mark in TEMPLATE_MARKS
    )
    with contextlib.suppress(UserError):
        written = data_for_ansible({"x": [text]})
        assert json.loads(written) == yaml.safe_load(written) == {"x": [text]} and not any(
            mark in text for mark in TEMPLATE_MARKS
        )
    shown = visible(text)
    assert shown.isprintable()
    assert shlex.split(shlex.join(["unhang", shown])) == ["unhang", shown]
    assert not [
        part
        for part in re.split(r"[;\t|]", cell_for_csv(shown))
        if part.strip()[:1] in ("=", "+", "-", "@")
    ]
    assert json.loads(safe_text(json.dumps({"x": text}, ensure_ascii=False), "ascii")) == {
        "x": text
    }
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
        "xid-fatal", "gpu007", "critical", text, text, text, owner="vendor",
        where={"index": 0, "name": text}, remedy={"person": text},
        evidence=[{"path": "a.b", "value": text}],
    )  # fmt: skip
    unread = fleets.finding(
        "a-rule",
        text,
        "error",
        "t",
        "e",
        "f",
        verdict="unknown",
        missing=[{"path": "gpus", "status": "error", "reason": text}],
    )
    findings = fleets.document([found, unread], {"ok": 1, "failed": 1})
    sections = fleets.sections(text, 2, text, text, text, ports=1)
    nodes = [
        summarise_node(fleets.node("gpu007", ["all"], sections)),
        summarise_node(fleets.node(text, [text], None, "failed", text)),
    ]
    blocks = list(ticket_blocks(findings, "gpu007", sections, [], [f"tried: {text}"]))
    made = {name: render(findings) for name, render in RENDERERS.items()}
    made |= {
        "json": render_json(findings),
        "html": render_page(findings, {}, nodes),
        "ticket.html": render_html_ticket(blocks),
    }
    runs = [
        PastRun(text, Path(text), f"2026-11-20T03:00:0{number}Z", None, text, (), frozenset())
        for number in (1, 2)
    ]
    news = news_of(
        *runs, [FoundChange("new", "error", text, text, {"name": text}, text, (text,))], "warning"
    )
    made["hook"] = "\n".join(value for value in (news or {}).values() if isinstance(value, str))
    return made | {
        "ticket.md": render_markdown_ticket(blocks),
        "commands": "\n".join(cause["command"] for cause in findings["causes"]),
    }


@cache
def _markup_of_plain_text(form: str) -> tuple[set[tuple[str, str]], list[str]]:
    return _markup(_shared("plain")[form])


def _markup(page: str) -> tuple[set[tuple[str, str]], list[str]]:
    markup = _Markup()
    markup.feed(page)
    markup.close()
    return markup.tags, markup.scripts


def share(data: bytes) -> None:
    """The same in what a browser, a spreadsheet, a CI server, an issue and a shell read of a
    run."""
    text = data.decode("utf-8", "replace")[:2000]
    made = _shared(text)
    for form in ("html", "ticket.html"):
        tags, scripts = _markup(made[form])
        plain_tags, plain_scripts = _markup_of_plain_text(form)
        assert tags <= plain_tags | {("wbr", "")} and scripts == plain_scripts, (
            f"{form}: {sorted(tags - plain_tags)}"
        )
    # indented lines are verbatim in Markdown
    lines = [line for line in made["ticket.md"].splitlines() if not line.startswith("    ")]
    assert not [line for line in lines if "<" in line or re.search(r"(?<!\\)\[[^]]*\]\(", line)]
    for row in csv.reader(io.StringIO(made["csv"])):
        for cell in row:
            assert not [
                part
                for part in re.split(r"[;\t|]", cell)
                if part.strip()[:1] in ("=", "+", "-", "@")
            ], cell
    ElementTree.fromstring(made["junit"])
    for form in ("json", "sarif"):
        json.loads(made[form])
    for line in made["commands"].splitlines():
        assert shlex.split(line) and line.isprintable()
    for form, file in made.items():
        assert file.replace("\n", "").replace("\r", "").isprintable() or form in (
            "html",
            "ticket.html",
        ), form


_TEXTS = [text.decode() for text in HOSTILE]
SLURM = [  # a node whose texts say it, one whose address does, and one that is called so
    json.dumps({"nodes": [{
        "name": text if odd == "name" else "gpu001",
        "address": text if odd == "address" else "10.0.0.1", "hostname": "gpu001",
        "state": ["IDLE", "DRAIN"],
        "reason": text, "reason_set_by_user": text, "gres": f"gpu:h200:8(S:0-1),{text}",
        "partitions": ["train", text], "active_features": [text, "ib"],
    }]}).encode()
    for text in _TEXTS for odd in ("reason", "address", "name")
]  # fmt: skip
VARIABLES = {
    "slurm_state",
    "slurm_reason",
    "slurm_reason_by",
    "slurm_partitions",
    "slurm_features",
    "slurm_gres",
    "ansible_host",
    "unhang_switch",
}


def list_slurm(data: bytes) -> None:
    """What Slurm says of its nodes, as an inventory: no text of it names a variable or a way to
    connect. Raises what parse_nodes_json and inventory_of do."""
    text = data.decode("utf-8", "replace")
    found = inventory_of(
        parse_nodes_json(text),
        f"SwitchName=leaf Nodes=gpu[001-004]\nSwitchName={text[:80]} Switches={text[80:160]}",
    )
    for host, variables in found.hosts.items():
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", host), host
        assert set(variables) <= VARIABLES
        assert re.fullmatch(
            r"[A-Za-z0-9_.:][A-Za-z0-9_.:-]*", str(variables.get("ansible_host", host))
        )
    names = {
        *found.groups,
        *found.children,
        *(child for below in found.children.values() for child in below),
    }
    assert all(re.fullmatch(r"slurm\w*", name, re.ASCII) for name in names), names
    assert {host for members in found.groups.values() for host in members} <= set(found.hosts)


def type_commands(data: bytes) -> None:
    """A text in the commands of a rollout, its undo and a smoke test: one word of a shell each, and
    in a program on a node a text."""
    text = data.decode("utf-8", "surrogateescape").replace("\0", "")
    rest = {"soak": SOAK, "max_failed": "0", "no_smoke": False, "through": False}
    for undo in (False, True):
        typed = typed_again(
            Path("/runs") / "one" / "undo",
            Namespace(undo=undo, inventory=[text], drain=text, ansible=[text], **rest),
            "--host",
            text,
        )
        words = shlex.split(typed)
        assert words[words.index("-i") :] == [
            "-i",
            text,
            "--drain",
            text,
            f"--ansible={text}",
            "--host",
            text,
        ]
    given = {"place": text, text: [text]}
    known: dict[str, Any] = {}
    exec(program_text("", given).decode("utf-8", "surrogatepass"), known)
    assert known["given"] == given
    assert shlex.split(program_line(text))[:1] == [text]
    plan = NodePlan(text, (0,), {"host": text, "steps": [text]})
    words = shlex.split(
        shell_line(carried(["python3", text], b"payload", *node_arguments(plan, watch_stdin=False)))
    )
    assert words[1] == text and json.loads(words[-1])["steps"] == [text]
