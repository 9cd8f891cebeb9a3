# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters that check an operator's options of a playbook that changes nodes. Implementation:
unhang.act.rollout, which imports no Ansible."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


def checked_list(value: Any, name: str, allowed: Any = None, may_be_empty: bool = False) -> Any:
    """A list of texts, made from a list or a text with commas. Unknown members are refused, and
    also an empty list unless it is allowed."""
    plain = (
        str(value)
        if isinstance(value, str)
        else [str(one) if isinstance(one, str) else one for one in value]
        if isinstance(value, list)
        else value
    )
    return _refusing(
        "split_list",
        plain,
        str(name),
        None if allowed is None else [str(one) for one in allowed],
        bool(may_be_empty),
    )


def checked_commands(value: Any, name: str) -> Any:
    """Commands, each a list of arguments, made from a list or a text with commas between
    commands."""
    from unhang.core.ansible.inventory import plain

    return _refusing("split_commands", plain(value), str(name))


def checked_rows(value: Any, name: str) -> Any:
    """A list of mappings."""
    from unhang.core.ansible.inventory import plain

    return _refusing("list_of_rows", plain(value), str(name))


def _refusing(check: Any, *given: Any) -> Any:
    from unhang.core import list_arguments
    from unhang.core.errors import UserError

    try:
        return getattr(list_arguments, check)(*given)
    except UserError as problem:
        raise AnsibleFilterError(str(problem)) from None


def limit_faults(limit: str) -> Any:
    """Reasons why a --limit is refused, [] for a good one."""
    from unhang.act.rollout.limit_readings import ambiguous_ranges

    return ambiguous_ranges(str(limit or ""))


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> Mapping[str, Callable[..., Any]]:
        """Filters by name."""
        return {
            "unhang_list": checked_list,
            "unhang_commands": checked_commands,
            "unhang_rows": checked_rows,
            "unhang_limit_faults": limit_faults,
        }
