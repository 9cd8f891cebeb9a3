"""Values of the inventory for a node: its policy, and options of the module that are set as
variables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unhang.core.list_arguments import split_list

# The module's options; a host or group sets each as unhang_<option>.
OPTIONS = (
    "gather_subset",
    "rootfs",
    "procfs",
    "sysfs",
    "kernel_log",
    "nvml_recording",
    "torch_environments",
    "nccl_roots",
    "hash_libraries",
    "p2p_matrix",
    "silence_s",
    "deadline_s",
    "first_handle_s",
)
LIST_OPTIONS = frozenset(("gather_subset", "rootfs", "torch_environments", "nccl_roots"))


@dataclass(frozen=True)
class Policy:
    """content: unhang_policy with its templates resolved, {} when there is none; source: its file,
    if Ansible knows it."""

    content: dict[str, Any]
    source: str | None


def policy_of(
    task_vars: Mapping[str, Any],
    template: Callable[[Any], Any],
    origin_of: Callable[[Any], str | None],
) -> Policy:
    """The host's unhang_policy. origin_of: gives the inventory file that a value came from.

    A value that is no mapping is kept under its own name, so that the judge's schema check reports
    it.
    """
    given = task_vars.get("unhang_policy")
    if given is None:
        return Policy({}, None)
    content = plain(template(given))
    return Policy(
        content if isinstance(content, dict) else {"unhang_policy": content}, origin_of(given)
    )


def options_of(
    arguments: Mapping[str, Any],
    task_vars: Mapping[str, Any],
    policy: Mapping[str, Any],
    template: Callable[[Any], Any],
) -> dict[str, Any]:
    """The module's options: from the task, else the host's variables, else the policy. Raises
    UserError for a value that should be a list."""
    options = dict(arguments)
    for option in OPTIONS:
        if option not in options and f"unhang_{option}" in task_vars:
            value = template(task_vars[f"unhang_{option}"])
            options[option] = (
                split_list(value, f"unhang_{option}", may_be_empty=True)
                if option in LIST_OPTIONS
                else value
            )
    torch = policy.get("torch")
    if (
        "torch_environments" not in options
        and isinstance(torch, Mapping)
        and torch.get("environments")
    ):
        options["torch_environments"] = torch["environments"]
    return options


def plain(value: Any) -> Any:
    """The value without Ansible's tags: JSON values unchanged, everything else (a date, .nan) as
    text."""
    return json.loads(json.dumps(value, default=str), parse_constant=str)
