"""Texts of nodes and of Slurm in what Ansible, a shell, a spreadsheet or a terminal reads: there as
data, or not at all."""

from __future__ import annotations

import contextlib
import json
import re
import shlex

import yaml

from unhang.act.plan.policy_from_nodes import policy_from_nodes, render_policy
from unhang.core.ansible.plain_data import TEMPLATE_MARKS, data_for_ansible
from unhang.core.ansible.slurm_inventory import inventory_of
from unhang.core.errors import UserError
from unhang.core.printing import safe_text
from unhang.core.secrets_in_text import without_secrets
from unhang.core.text import cell_for_csv, visible
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
