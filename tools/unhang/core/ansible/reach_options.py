"""Options of ansible-playbook that decide how it reaches the nodes and as whom, as words for the
commands that are printed afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FLAGS = {"become": "--become", "become_ask_pass": "--ask-become-pass", "ask_pass": "--ask-pass"}
_VALUES = {
    "become_user": "--become-user",
    "become_password_file": "--become-password-file",
    "connection_password_file": "--connection-password-file",
    "remote_user": "--user",
    "private_key_file": "--private-key",
    "ssh_common_args": "--ssh-common-args",
    "ssh_extra_args": "--ssh-extra-args",
}
_USUAL_METHOD = "sudo"


def reach_options(given: Mapping[str, Any]) -> list[str]:
    """One word for each option, a value behind `=`. given: Ansible's own record of its command line
    (context.CLIARGS), passwords not included."""
    words = [word for name, word in _FLAGS.items() if given.get(name)]
    words += [f"{word}={given[name]}" for name, word in _VALUES.items() if given.get(name)]
    method = given.get("become_method")
    return (
        [*words, f"--become-method={method}"]
        if given.get("become") and method and method != _USUAL_METHOD
        else words
    )
