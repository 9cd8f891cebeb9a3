"""`unhang playbook NAME`: runs one of unhang's playbooks with its own Ansible configuration, from
any folder; other arguments go to ansible-playbook."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from unhang.core import project
from unhang.core.ansible.limit_refusal import limit_refusal, translated
from unhang.core.commands.common_options import add_examples
from unhang.core.errors import UserError
from unhang.core.path_arguments import checked_inventory
from unhang.core.run.run_folder import RUNS_ENV, runs_folder

# of `audit --via`, of remediate and rollback, and of plan
PARTS = frozenset(("audit_few", "open_audit", "rollout", "scheduler_jobs"))
EXAMPLES = """\
  unhang playbook remediate -i inventory/mycluster --limit gpu001 -e unhang_roles=host_tuning   previews one role on one node
  unhang playbook rollback -i inventory/mycluster --limit 'gpu[001-003]'                        previews the rollback"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "unhang playbook NAME [ansible-playbook's options]"
    add_examples(parser, EXAMPLES)
    parser.add_argument(
        "name",
        metavar="NAME",
        help=(
            "audit, inspect, smoke, preprovision, remediate (which previews) or rollback (which"
            " previews)"
        ),
    )
    rest = parser.add_argument(
        "ansible",
        nargs=argparse.REMAINDER,
        metavar="OPTION",
        help="options of ansible-playbook: -i, --limit, -e, --become …",
    )
    rest.required = False  # otherwise argparse lists it as missing, though it is optional


def run(arguments: argparse.Namespace) -> int:
    """ansible-playbook replaces this process, so the exit code is its own. Raises UserError."""
    home = project.find_project()
    known = playbooks(home)
    name = arguments.name.removesuffix(".yml")
    if name not in known:
        near = difflib.get_close_matches(arguments.name, known, 1)
        raise UserError(
            f"expected one of {', '.join(known)}, found"
            f" {arguments.name!r}{f'; did you mean {near[0]}?' if near else ''}"
        )
    for inventory in _inventories(arguments.ansible):
        # Ansible continues without a missing inventory, and ends with 0 if no host remains
        checked_inventory(inventory)
    playbook = home / "playbooks" / f"{name}.yml"
    project.link_pynvml(home)
    program = project.ansible_program("ansible-playbook")
    environment = project.ansible_environment(home, os.environ)
    # An installation may be read-only: files of roles on the controller go to the folder where
    # commands look for them.
    environment[RUNS_ENV] = str(runs_folder().absolute())
    sys.stdout.flush()
    os.execve(program, [program, str(playbook), *_with_hosts(arguments.ansible)], environment)  # noqa: S606 -- an argv list, no shell


def playbooks(home: Path) -> list[str]:
    return sorted({path.stem for path in (home / "playbooks").glob("*.yml")} - PARTS)


def _inventories(given: Sequence[str]) -> Iterator[str]:
    for place, word in enumerate(given):
        option, equals, value = word.partition("=")
        if option == "--inventory" and equals:
            yield value
        elif word in ("-i", "--inventory") and place + 1 < len(given):
            yield given[place + 1]


def _with_hosts(given: Sequence[str]) -> list[str]:
    """The options with hosts in place of node sets in --limit. Raises UserError."""
    arguments, is_limit = [], False
    for word in given:
        option, equals, value = word.partition("=")
        if is_limit:
            arguments.append(_hosts(word))
        elif option == "--limit" and equals:
            arguments.append(f"--limit={_hosts(value)}")
        else:
            arguments.append(word)
        is_limit = not is_limit and word in ("-l", "--limit")
    return arguments


def _hosts(limit: str) -> str:
    return translated(limit) if limit_refusal(limit) else limit
