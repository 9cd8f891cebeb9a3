"""Which setting wins, for each way in which a job can be started.

login: an interactive shell. ssh: `ssh host command`, as mpirun and pdsh start ranks. systemd: a
unit. slurm: srun and sbatch. container: inside one. Where the node cannot show the value (it is
computed, differs between units, comes from the host that submitted the job, or is set for one user
only), the winning value is None: the variable is set, and its value is not known.
"""

from __future__ import annotations

from ...base.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

PATHS = ("login", "ssh", "systemd", "slurm", "container")
FILE_SOURCES = ("nccl_conf", "user_nccl_conf")
MAX_VARIABLES = 512
_UNDECIDED = object()


class Setting(NamedTuple):
    """One assignment with its place. launch_paths: the ones that it affects. value None: the
    variable is unset. everyone False: it is in one user's own file, or in one unit of several."""

    name: str
    value: str | None
    file: str
    line: int | None
    source: str
    launch_paths: tuple[str, ...]
    certain: bool = True
    everyone: bool = True

    def row(self) -> dict[str, Any]:
        """As the schema's settings have it."""
        return {
            "name": self.name,
            "value": self.value,
            "file": self.file,
            "line": self.line,
            "source": self.source,
            "launch_paths": list(self.launch_paths),
            "certain": self.certain,
        }


def judge_effective(settings: Iterable[Setting]) -> dict[str, dict[str, str | None]]:
    """{launch path: {name: value that wins, or None}}. settings: [Setting] in the order in which
    the files are read."""
    return {path: _of_path(path, settings) for path in PATHS}


def _of_path(path: str, settings: Iterable[Setting]) -> dict[str, str | None]:
    winners: dict[str, Any] = {}  # a value, or _UNDECIDED
    for setting in settings:
        if path in setting.launch_paths and setting.source not in FILE_SOURCES:
            _put(winners, setting)
    if path == "slurm":
        # A Slurm job has the environment of its user on the host where it was submitted.
        for setting in settings:
            if (
                "login" in setting.launch_paths
                and setting.source not in FILE_SOURCES
                and setting.value is not None
            ):
                winners.setdefault(setting.name, _UNDECIDED)
    if path == "container":
        return _decided(winners)  # the host's nccl.conf is not visible inside a container
    # NCCL sets from its files only variables that the environment does not set: first the user's
    # file, then /etc/nccl.conf; in each file the first line wins.
    for source in ("user_nccl_conf", "nccl_conf"):
        for setting in settings:
            if (
                setting.source == source
                and path in setting.launch_paths
                and setting.name.startswith("NCCL_")
            ):
                winners.setdefault(setting.name, setting.value if setting.everyone else _UNDECIDED)
    return _decided(winners)


def _put(winners: dict[str, Any], setting: Setting) -> None:
    before = winners.get(setting.name)
    if not setting.certain:
        winners[setting.name] = _UNDECIDED
    elif not setting.everyone:
        same = setting.name in winners and before == setting.value
        winners[setting.name] = setting.value if same else _UNDECIDED
    elif setting.value is None:
        winners.pop(setting.name, None)
    else:
        winners[setting.name] = setting.value


def _decided(winners: dict[str, Any]) -> dict[str, str | None]:
    return {
        name: (None if value is _UNDECIDED else value)
        for name, value in sorted(winners.items())[:MAX_VARIABLES]
    }
