"""Reads the files that set variables for NCCL, torch and CUDA, kind by kind, in the order in which
they take effect."""

from __future__ import annotations

import os

from ...base.parse.allowed_names import PREFIXES, allowed_assignments
from ...base.untrusted_files import names_or_none, read_file, read_text, resolve_local
from ..parse.env_files import (
    container_prefixed,
    parse_containers_conf,
    parse_docker_container,
    parse_enroot_env,
    parse_environment,
    parse_pam_env_conf,
    parse_slurm_conf,
    parse_sshd_setenv,
)
from ..parse.launch_paths import Setting
from ..parse.nccl_conf import parse_nccl_conf
from ..parse.shell_env import parse_shell, parse_task_prolog
from ..parse.systemd_env import parse_environment_file, parse_unit
from .reading import drop_ins
from .slurm import FOLDERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...base.parse.assignment import Assignment
    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

HOST_PATHS = ("login", "ssh", "systemd", "slurm")
SLURM_CONFS = tuple(folder + "/slurm.conf" for folder in FOLDERS)
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system")
VENDOR_UNITS = ("/usr/lib/systemd/system", "/lib/systemd/system")
# Of the vendors' units only those that start jobs are read; of the site's own units all.
JOB_UNITS = (
    "slurmd.service",
    "docker.service",
    "containerd.service",
    "kubelet.service",
    "crio.service",
    "nvidia-",
    "jupyter",
    "ray",
)
# The environment of these units does not reach the jobs that they start.
NOT_HANDED_ON = (
    "slurmd.service",
    "docker.service",
    "containerd.service",
    "kubelet.service",
    "crio.service",
    "nvidia-",
)
OTHER_WORDS = (
    "VISIBLE_DEVICES",
    "UCX_",
    "FI_PROVIDER",
    "OMP_NUM",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MASTER_",
    "nccl_",
    "MAX_JOBS",
    "ALLOC_CONF",
)
MAX_FILES = 512
MAX_CONTAINERS = 64


class SettingsReader:
    """Collects Settings; what cannot be read is noted once per file under `settings`."""

    def __init__(self, root: Root, unread: Unread, mounts: list[Mount]) -> None:
        self.root, self.unread, self.mounts = root, unread, mounts
        self.settings: list[Setting] = []

    def text(self, path: str) -> str | None:
        """A system file's text; None if it does not exist, is not local, or cannot be read
        (noted)."""
        try:
            return read_text(self.root, resolve_local(self.root, self.mounts, path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as problem:
            self.unread.of_error("settings", problem)
            return None

    def names(self, folder: str) -> list[str]:
        """Names in a local folder; [] if it does not exist or cannot be listed (noted)."""
        try:
            return names_or_none(self.root, resolve_local(self.root, self.mounts, folder))[
                :MAX_FILES
            ]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as problem:
            self.unread.of_error("settings", problem)
            return []

    def add(
        self,
        assignments: Iterable[Assignment],
        path: str,
        source: str,
        launch_paths: Iterable[str],
        everyone: bool = True,
    ) -> None:
        """Adds the allowed ones of `assignments`."""
        for row in allowed_assignments(assignments):
            self.settings.append(
                Setting(
                    name=row.name,
                    value=row.value,
                    file=path,
                    line=row.line,
                    source=source,
                    launch_paths=tuple(launch_paths),
                    certain=row.certain,
                    everyone=everyone,
                )
            )


def mentions(text: str) -> bool:
    """True if the text names a variable of interest, which most start-up files do not: only then it
    is parsed."""
    return any(word in text for word in PREFIXES + OTHER_WORDS)


def read_pam(reader: SettingsReader) -> None:
    """/etc/environment and pam_env.conf. They affect every session that PAM opens: logins and ssh
    commands, not services and not Slurm's tasks."""
    for path, parse in (
        ("/etc/security/pam_env.conf", parse_pam_env_conf),
        ("/etc/environment", parse_environment),
    ):
        text = reader.text(path)
        if text and mentions(text):
            reader.add(parse(text), path, "environment", ("login", "ssh"))


def read_sshd(reader: SettingsReader) -> None:
    """SetEnv of sshd: after PAM, for ssh sessions."""
    paths = [
        "/etc/ssh/sshd_config.d/" + name
        for name in reader.names("/etc/ssh/sshd_config.d")
        if name.endswith(".conf")
    ]
    for path in [*paths, "/etc/ssh/sshd_config"]:
        text = reader.text(path)
        if text and mentions(text):
            reader.add(parse_sshd_setenv(text), path, "other", ("login", "ssh"))


def read_shells(reader: SettingsReader) -> None:
    """/etc/profile, profile.d and the system's bashrc, which login shells read."""
    paths = ["/etc/profile"]
    paths += [
        "/etc/profile.d/" + name for name in reader.names("/etc/profile.d") if name.endswith(".sh")
    ]
    paths += ["/etc/bash.bashrc", "/etc/bashrc"]
    for path in paths:
        text = reader.text(path)
        if text and mentions(text):
            rows = parse_shell(text)
            reader.add(rows, path, "profile", ("login",))
            reader.add(container_prefixed(rows), path, "container", ("container",), everyone=False)


def read_systemd(reader: SettingsReader) -> None:
    """DefaultEnvironment of the manager, then Environment and EnvironmentFile of units."""
    parts = drop_ins(
        reader.root,
        (
            "/etc/systemd/system.conf.d",
            "/run/systemd/system.conf.d",
            "/usr/lib/systemd/system.conf.d",
        ),
    )
    for path in ["/etc/systemd/system.conf", *parts]:
        text = reader.text(path)
        if text and mentions(text):
            reader.add(
                parse_unit(text, "Manager", "DefaultEnvironment")[0], path, "systemd", ("systemd",)
            )
    for unit, paths in _units(reader).items():
        launch_paths = () if unit.startswith(NOT_HANDED_ON) else ("systemd",)
        for path in paths:
            text = reader.text(path)
            if not text or "Environment" not in text:
                continue
            rows, files = parse_unit(text)
            reader.add(rows, path, "systemd", launch_paths, everyone=False)
            for file in files:
                content = (
                    reader.text(file)
                    if file.startswith("/") and "%" not in file and "*" not in file
                    else None
                )
                if content and mentions(content):
                    reader.add(
                        parse_environment_file(content),
                        file,
                        "systemd",
                        launch_paths,
                        everyone=False,
                    )


def _units(reader: SettingsReader) -> dict[str, list[str]]:
    """{unit: [its file and drop-ins]} of the site's own services, and of the vendors' services that
    start jobs."""
    units: dict[str, list[str]] = {}
    vendor_seen = set()
    for folder in (*VENDOR_UNITS, *UNIT_FOLDERS):
        is_vendors = folder in VENDOR_UNITS
        for name in reader.names(folder):
            unit, dropped = (name[:-2], True) if name.endswith(".d") else (name, False)
            if not unit.endswith(".service") or (is_vendors and not unit.startswith(JOB_UNITS)):
                continue
            if is_vendors and folder != VENDOR_UNITS[0] and name in vendor_seen:
                continue  # /lib is /usr/lib
            vendor_seen.add(name)
            path = folder + "/" + name
            paths = (
                [path + "/" + each for each in reader.names(path) if each.endswith(".conf")]
                if dropped
                else [path]
            )
            units.setdefault(unit, []).extend(paths)
    # A unit's own file comes before its drop-ins.
    return {
        unit: sorted(paths, key=lambda path: ".service.d/" in path)[:MAX_FILES]
        for unit, paths in sorted(units.items())[:MAX_FILES]
    }


def read_slurm(reader: SettingsReader) -> None:
    """What a Slurm TaskProlog prints reaches every task; a Prolog's own environment does not, so it
    is not read."""
    for conf in SLURM_CONFS:
        text = reader.text(conf)
        if text is None:
            continue
        prolog = parse_slurm_conf(text).get("taskprolog", ("", 0))[0]
        for path in [prolog] if prolog.startswith("/") else []:
            script = reader.text(path)
            if script and mentions(script):
                reader.add(parse_task_prolog(script), path, "slurm", ("slurm",))
        return


def read_containers(reader: SettingsReader) -> None:
    """What enroot, Podman and running Docker containers set inside."""
    for name in reader.names("/etc/enroot/environ.d"):
        path = "/etc/enroot/environ.d/" + name
        text = reader.text(path) if name.endswith(".env") else None
        if text and mentions(text):
            reader.add(parse_enroot_env(text), path, "container", ("container",))
    for path in ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf"):
        text = reader.text(path)
        if text and mentions(text):
            reader.add(
                parse_containers_conf(text), path, "container", ("container",), everyone=False
            )
    for name in reader.names("/var/lib/docker/containers")[:MAX_CONTAINERS]:
        path = f"/var/lib/docker/containers/{name}/config.v2.json"
        text = reader.text(path)
        if not text or not mentions(text):
            continue
        try:
            _name, running, rows = parse_docker_container(text)
        except ValueError as problem:
            reader.unread.of_error("settings", problem)
            continue
        if running:
            reader.add(rows, path, "container", (), everyone=False)  # set for this container only


def read_nccl_conf(reader: SettingsReader) -> None:
    """/etc/nccl.conf."""
    try:
        content = read_file(
            reader.root, resolve_local(reader.root, reader.mounts, "/etc/nccl.conf")
        )
    except FileNotFoundError:
        return
    except (OSError, ValueError) as problem:
        reader.unread.of_error("settings", problem)
        return
    reader.add(parse_nccl_conf(content), "/etc/nccl.conf", "nccl_conf", HOST_PATHS)


def read_named_conf(reader: SettingsReader) -> None:
    """The files that NCCL_CONF_FILE names: they replace ~/.nccl.conf on the launch paths that set
    this variable."""
    for setting in [
        each for each in reader.settings if each.name == "NCCL_CONF_FILE" and each.certain
    ]:
        path = setting.value or ""
        if not path.startswith("/") or any(each.file == path for each in reader.settings):
            continue
        try:
            content = read_file(reader.root, resolve_local(reader.root, reader.mounts, path))
        except (OSError, ValueError) as problem:
            reader.unread.of_error("settings", problem)
            continue
        reader.add(
            parse_nccl_conf(content), path, "user_nccl_conf", setting.launch_paths, setting.everyone
        )


def read_user_conf(reader: SettingsReader, home: str, owner: int | None) -> None:
    """<home>/.nccl.conf, if it is a regular file that the user owns; a link to another file, a FIFO
    or a device is refused and noted."""
    path = os.path.join(home, ".nccl.conf")
    try:
        folder = resolve_local(reader.root, reader.mounts, home)
        content = read_file(reader.root, folder + "/.nccl.conf", follow=False, owner=owner)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as problem:
        reader.unread.of_error("settings", problem)
        return
    reader.add(parse_nccl_conf(content), path, "user_nccl_conf", HOST_PATHS, everyone=False)
