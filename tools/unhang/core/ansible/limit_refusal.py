"""Refuses a --limit in Slurm's notation for plain ansible-playbook, and names the hosts that it
means."""

from __future__ import annotations

import re

from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit, split_patterns
from unhang.core.text import visible

# What Ansible itself understands has another form: web[0], web[0:3], web[-1]; and with a wildcard a
# bracket is a class of characters.
_NODE_SET = re.compile(r"[^\[\]*?~:]*(?:\[[0-9]+(?:[-,/ ][0-9,/ -]*)\][^\[\]*?:]*)+")
LONGEST = 2000


def is_node_set(term: str) -> bool:
    """Whether a term of a limit is a node set with a range or a list, such as gpu[001-016] or
    !gpu[1,3]."""
    return bool(_NODE_SET.fullmatch(term.lstrip("!&")))


def limit_refusal(limit: str) -> str:
    """Empty for a limit without a node set."""
    sets = [term for term in _terms(limit) if is_node_set(term)]
    if not sets:
        return ""
    try:
        hosts = translated(limit)
    except UserError as problem:
        return f"unhang: --limit {visible(limit, 200)}: {visible(str(problem), 300)}"
    write = (
        f"--limit '{hosts}'"
        if len(hosts) <= LONGEST
        else "the hosts into a file, one a line, and --limit @FILE"
    )
    message = (
        f"unhang: --limit {visible(limit, 200)}: ansible-playbook does not read"
        f" {visible(sets[0], 120)} as a set of hosts"
    )
    return f"{message}; write {write}"


def translated(limit: str) -> str:
    """The limit with its node sets as lists of hosts; what is no node set stays. Raises UserError
    for one that is too large or none."""
    return ",".join(
        one
        for term in _terms(limit)
        for one in (expand_limit(term) if is_node_set(term) else [term])
    )


def _terms(limit: str) -> list[str]:
    """A regular expression (~…) is one term, whatever it contains."""
    outer = split_patterns(limit, ",")
    return [
        term
        for one in outer
        for term in ([one] if one.lstrip("!&").startswith("~") else split_patterns(one, ":"))
    ]
