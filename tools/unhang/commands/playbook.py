"""`unhang playbook NAME`: runs one of unhang's playbooks with its own configuration of Ansible, from any folder; the rest is ansible-playbook's."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence

from unhang import project
from unhang.ansible.limit_refusal import limit_refusal, translated
from unhang.commands.common_options import add_examples
from unhang.errors import UserError
from unhang.run_folder import RUNS_ENV, runs_folder

EXAMPLES = """\
  unhang playbook remediate -i inventory/mycluster --limit gpu001 -e unhang_roles=host_tuning   previews one role on one node
  unhang playbook rollback -i inventory/mycluster --limit 'gpu[001-003]'                        previews the way back"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The playbook, and what ansible-playbook is given."""
    parser.usage = "unhang playbook NAME [ansible-playbook's options]"
    add_examples(parser, EXAMPLES)
    parser.add_argument("name", metavar="NAME", help="audit, smoke, preprovision, remediate (which previews) or rollback (which previews)")
    rest = parser.add_argument("ansible", nargs=argparse.REMAINDER, metavar="OPTION", help="options of ansible-playbook: -i, --limit, -e, --become …")
    rest.required = False  # argparse names it among what is missing, though it may be left out


def run(arguments: argparse.Namespace) -> int:
    """ansible-playbook's own exit code: it takes the place of this process. Raises UserError."""
    home = project.find_project()
    playbook = home / "playbooks" / f"{arguments.name.removesuffix('.yml')}.yml"
    if playbook.parent != home / "playbooks" or not playbook.is_file():
        known = sorted(path.stem for path in (home / "playbooks").glob("*.yml"))
        near = difflib.get_close_matches(arguments.name, known, 1)
        raise UserError(f"expected one of {', '.join(known)}, found {arguments.name!r}{f'; did you mean {near[0]}?' if near else ''}")
    project.link_pynvml(home)
    program = project.ansible_program("ansible-playbook")
    environment = project.ansible_environment(home, os.environ)
    # An installation is only read: what a role writes here by itself lies where a command looks for it.
    environment[RUNS_ENV] = str(runs_folder(project.checkout_of(home)).absolute())
    sys.stdout.flush()
    os.execve(program, [program, str(playbook), *_with_hosts(arguments.ansible)], environment)  # noqa: S606 -- an argv list, no shell


def _with_hosts(given: Sequence[str]) -> list[str]:
    """Options in which --limit has hosts instead of node sets. Raises UserError."""
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
