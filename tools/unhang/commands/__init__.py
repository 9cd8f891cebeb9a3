"""The commands of `unhang`: which there are, and in which wing each is; its file is imported only
when it is called.

Commands of no wing read both catalogues, of rules and of signatures, and lie in this folder.
"""

from __future__ import annotations

# {name: purpose}; the file of `catalogue new` is catalogue_new.py, and `unhang --help` shows it in
# the line of `catalogue`
COMMANDS = {
    "inspect": "look at a running job: which rank all others wait for, where it is, and why",
    "diagnose": "find the most probable cause of a failure in logs",
    "watch": "watch a running job; when it makes no progress, say which rank it is and why",
    "lint": "find useless, harmful or fault-hiding settings in scripts before they run",
    "audit": "read every node of an inventory and judge the facts",
    "collect": "read this machine and print its facts: unhang collect | unhang judge -",
    "judge": "judge a run folder again, off-line, or what collect printed",
    "report": "show a judged run: one screen, table, HTML, JSON, CSV and more",
    "plan": "turn findings into a plan: which roles on which nodes, in which waves",
    "remediate": "apply a plan in waves that stop when nodes fail; show the state of each node",
    "smoke": "prove that a group of GPUs can train together, or name the faulty one",
    "explain": "describe a rule, Xid, variable, version or GPU, with sources",
    "demo": "audit a recorded fleet, without GPU or ssh",
    "waive": "accept a finding until a day: write the waiver into the inventory's policy",
    "history": "list the runs; what happened to a node or a finding; history diff: what differs",
    "history diff": "show what differs between two runs, groups, nodes or environments",
    "preprovision": "decide which nodes may join; --verify checks an admission; short name: admit",
    "policy": "write a policy from nodes that are known to be good",
    "catalogue": "list rules and tables; catalogue new: a new rule; catalogue check: your rules",
    "catalogue new": "print a row for a new rule, with examples that prove it",
    "catalogue check": "check a folder of rules",
    "completion": "print the completion script for bash, zsh or fish",
    "mcp": "let an assistant ask diagnose, inspect, explain, lint, the last audit; reads only",
}
FIRST = 12  # of COMMANDS: those that the first page of --help has first
# {name of the version before: what is typed now}
RENAMED = {
    "runs": "unhang history",
    "diff": "unhang history diff",
    "merge": "unhang audit --via files",
    "rule new": "unhang catalogue new",
    "rule check": "unhang catalogue check",
    "playbook": "ansible-playbook unhang.ops.NAME of the collection, or playbooks/NAME.yml",
    **dict.fromkeys(
        ("verify", "admit verify", "preprovision verify"), "unhang preprovision --verify"
    ),
}
SHORT_NAMES = {"admit": "preprovision"}
# Commands that only playbooks call; no help lists them.
HIDDEN = {
    "gate-step": "what playbooks/preprovision.yml asks the controller",
}
WINGS = {
    "jobs": ("diagnose", "inspect", "lint", "watch"),
    "audit": (
        "audit",
        "collect",
        "demo",
        "history",
        "history diff",
        "judge",
        "report",
        "catalogue new",
        "waive",
    ),
    "act": (
        "gate-step",
        "plan",
        "policy",
        "preprovision",
        "remediate",
    ),
    "smoke": ("smoke",),
}
# {package that the base install has not: the extra that brings it}, as pyproject.toml has them
EXTRAS = dict.fromkeys(("fabric", "prometheus_client"), "fleet") | dict.fromkeys(
    ("mcp", "mcp_types", "anyio"), "mcp"
)
