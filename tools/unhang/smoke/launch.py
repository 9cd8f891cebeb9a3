"""What reaches nodes from here: fabric's ssh, or Slurm's srun. The playbook is the third way and has a folder between the steps (folder.py)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unhang.errors import UserError
from unhang.smoke.container import Container
from unhang.smoke.group import Surveys
from unhang.smoke.plan import NodePlan
from unhang.smoke.streams import Event, Stream

OnEvent = Callable[[str, Event], None]


@dataclass(frozen=True)
class Launcher:
    """What differs between ways to reach nodes. survey: by host the payload's answer or why there is none; run: one group, to its end."""

    name: str
    survey: Callable[[Sequence[str]], Surveys]
    run: Callable[[Sequence[NodePlan]], list[Stream]]


def ssh_launcher(payload: bytes, container: Container | None, user: str | None, files: Mapping[str, str | None], on_event: OnEvent) -> Launcher:
    """fabric, with host keys checked. files: ssh_config, known_hosts, identity, or None. Raises UserError for files that are not there."""
    from unhang.smoke import remote  # fabric takes a third of a second to load

    for name, path in files.items():
        if path and not Path(path).is_file():
            raise UserError(f"--{name.replace('_', '-')}: expected a file at {path}, found none")
    access = remote.Access(payload, tuple(container.program) if container else ("python3",), user, **files)
    return Launcher("fabric", lambda names: remote.survey_all(names, access), lambda plans: remote.run_group(plans, access, on_event))


def slurm_launcher(payload: bytes, container: Container | None, options: Sequence[str], on_event: OnEvent) -> Launcher:
    """srun. Raises UserError where there is none."""
    from unhang.smoke import slurm

    if shutil.which("srun") is None:
        raise UserError("--launcher slurm: expected srun on PATH, found none; run it where jobs are submitted")
    program, mine = (container.program, container.srun_options()) if container else (["python3"], [])
    cluster = slurm.Cluster(payload, tuple(program), tuple(options), tuple(mine))
    return Launcher("slurm", lambda names: slurm.survey_all(names, cluster), lambda plans: slurm.run_group(plans, cluster, on_event))
