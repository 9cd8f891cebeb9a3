"""Asks Slurm and Kubernetes once for the jobs of all nodes, with playbooks/scheduler_jobs.yml."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unhang.act.plan.plan_document import Job
from unhang.act.plan.scheduler_jobs import parse_answer
from unhang.core import project
from unhang.core.ansible import ansible_env
from unhang.core.ansible.plain_data import data_for_ansible
from unhang.core.ansible.playbook_command import inventories_of, play_into
from unhang.core.errors import UserError
from unhang.core.strict_json import NotStrict, read_bounded
from unhang.core.text import counted, visible

MOST_BYTES = 256 * 1024 * 1024
PLAYBOOK = "scheduler_jobs.yml"
NO_ANSWER = "ansible-playbook ended without an answer"


def ask_schedulers(
    hosts: Mapping[str, Sequence[str]], inventories: Sequence[str], options: Sequence[str]
) -> dict[str, list[Job]]:
    """The jobs of these hosts (scheduler -> hosts) now; hosts about which no scheduler answered are
    missing, and standard error names the reason. options: of ansible-playbook. Raises UserError
    where it is stopped."""
    home = project.find_project()
    found: dict[str, list[Job]] = {}
    with tempfile.TemporaryDirectory(prefix="unhang-jobs-") as place:
        variables = {"scheduler_hosts": dict(hosts), "scheduler_answers": place}
        given = Path(place) / "asked.json"
        given.write_text(data_for_ansible(variables), encoding="utf-8")
        command = [
            ansible_env.ansible_program("ansible-playbook"),
            str(home / "playbooks" / PLAYBOOK),
            *(word for one in inventories_of(inventories, home) for word in ("-i", one)),
            *options,
            "-e",
            f"@{given}",
        ]
        # it audits nothing, so that no run folder is made
        played = play_into(command, home, Path(place) / "run")
        if played.stopped:
            raise UserError("it was stopped by hand while the scheduler was asked for the jobs")
        for scheduler, named in hosts.items():
            answer = _read(Path(place) / f"{scheduler}.json")
            known = parse_answer(answer, named)
            found |= known
            if missing := [host for host in named if host not in known]:
                why = answer.get("why") or f"{scheduler} does not know them"
                sys.stderr.write(
                    f"unhang: the jobs of {counted(len(missing), 'node')} are not known:"
                    f" {visible(str(why), 300)}\n"
                )
    return found


def _read(path: Path) -> dict[str, Any]:
    answer = None
    with suppress(OSError, NotStrict, ValueError, RecursionError):
        answer = json.loads(read_bounded(path, MOST_BYTES))
    return answer if isinstance(answer, dict) else {"why": NO_ANSWER}
