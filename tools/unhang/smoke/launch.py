"""How the controller starts programs on nodes: ssh (fabric) or srun. The playbook is the third way;
it exchanges files through a folder (smoke_folder.py)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unhang.core.errors import UserError
from unhang.smoke.container import Container
from unhang.smoke.group import Surveys
from unhang.smoke.local import OnEvent
from unhang.smoke.node_plans import NodePlan
from unhang.smoke.streams import Stream


@dataclass(frozen=True)
class Launcher:
    """A way to reach nodes. survey: returns {host: the payload's answer or why there is none}; run:
    runs one group to its end."""

    survey: Callable[[Sequence[str]], Surveys]
    run: Callable[[Sequence[NodePlan]], list[Stream]]


def ssh_launcher(
    payload: bytes,
    container: Container | None,
    user: str | None,
    ssh_config: str | None,
    on_event: OnEvent,
) -> Launcher:
    """fabric, with host keys checked. Raises UserError for a missing file."""
    # imported here, because fabric takes a third of a second to load
    from unhang.smoke import remote

    if ssh_config and not Path(ssh_config).is_file():
        raise UserError(f"--ssh-config names {ssh_config}, which does not exist")
    access = remote.Access(
        payload, tuple(container.program) if container else ("python3",), user, ssh_config
    )
    return Launcher(
        lambda names: remote.survey_all(names, access),
        lambda plans: remote.run_group(plans, access, on_event),
    )


def slurm_launcher(
    payload: bytes, container: Container | None, options: Sequence[str], on_event: OnEvent
) -> Launcher:
    """A launcher that uses srun. Raises UserError without srun."""
    from unhang.smoke import slurm

    if shutil.which("srun") is None:
        raise UserError(
            "--launcher slurm needs srun, which is not on PATH; run it where jobs are submitted"
        )
    program, mine = (
        (container.program, container.srun_options()) if container else (["python3"], [])
    )
    cluster = slurm.Cluster(payload, tuple(program), tuple(options), tuple(mine))
    return Launcher(
        lambda names: slurm.survey_all(names, cluster),
        lambda plans: slurm.run_group(plans, cluster, on_event),
    )
