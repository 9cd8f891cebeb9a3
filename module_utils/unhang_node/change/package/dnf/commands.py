"""Calls dnf 4 and rpm, with a deadline for each call.

Differences from apt: a package that no repository offers any more is not rebuilt, no package is
ever half configured, and pins are version locks (package_pin). In addition there are module streams
(modules.py).
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, Iterable, List, Sequence, Set, Tuple

from ....base.parse.dpkg import Package
from ....base.versions.packages import rpm_version_key
from ...atomic_files import place_of, read_state, write_text
from ...config.unit_links import units_in
from ..programs import command_line, inside, private_folder, run
from ..saved import OLD, replace_kept, sha256_of
from ..unit import WORK
from ..values import Installed, Locked, Offers, Refused, Request, Row, Step
from .modules import ALL_STREAMS, Streams, enabling, open_view
from .output import parse_lines, parse_transaction, waits_for

INSTALLED = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\t%{SOURCERPM}\\n"
OFFERED = "%{name}\\t%{epoch}:%{version}-%{release}\\t%{arch}\\t%{repoid}\\n"
ABORTED = 1  # dnf's exit code after its question was answered with no


def read_installed_rpms(rootfs: str) -> Installed:
    """Raises ValueError, OSError."""
    code, output = run(rootfs, ["rpm", "-qa", "--qf", INSTALLED])
    if code:
        raise ValueError(f"rpm -qa ended with {code}: {output.strip()[-200:]}")
    packages, sources = {}, {}
    for name, version, architecture, source in parse_lines(output):
        row = Package(
            name=name, version=version, architecture=architecture, held=False, state="installed"
        )
        packages[name] = row  # if several kernels are installed, the last one
        sources[name] = source.rsplit("-", 2)[0]
    ours = {lock.rsplit("-", 2)[0] for lock in read_state(rootfs, "package_hold").get("locks", ())}
    return Installed(
        packages=packages,
        unfinished=[],
        interrupted=False,
        config_files=set(),
        ours=ours,
        architecture="",
        sources=sources,
    )


def units_of(rootfs: str, row: Row) -> Set[str]:
    """Names of the systemd units that an installed package ships. row: of packages.json."""
    code, output = run(rootfs, ["rpm", "--query", "--list", row["name"]])
    return set() if code else units_in(output.splitlines())


def dnf(request: Request, *arguments: str) -> List[str]:
    """argv of dnf with the options of a request."""
    options = ["--setopt=install_weak_deps=False"]
    options += ["--disableplugin=versionlock"] if request.change_held else []
    return ["dnf", "-q", *options, *arguments]


def private(folder: str) -> List[str]:
    """Options for a simulation, which must not write to the node's cache and log."""
    return [
        f"--setopt=cachedir={folder}/cache",
        f"--setopt=logdir={folder}",
        "--disableplugin=generate_completion_cache",
    ]


def arguments_of(request: Request, folder: str) -> List[str]:
    """A request as arguments of dnf. To install and remove in one transaction needs dnf's shell,
    whose commands are in a file in `folder`. Raises OSError."""
    install = [
        f"{name}-{version}" if version else name
        for name, version in sorted(request.install.items())
    ]
    erasing = ["--allowerasing"] if request.allow_remove and install else []
    if not install:
        return ["remove", *sorted(request.remove)]
    if not request.remove:
        return ["install", *erasing, *install]
    path = folder + "/transaction"
    lines = f"remove {' '.join(sorted(request.remove))}\ninstall {' '.join(install)}\nrun\n"
    write_text(place_of(request.rootfs, path), lines, 0o600)
    return [*erasing, "shell", path]


def simulate(request: Request, installed: Installed, folder: str, streams: Streams) -> List[Step]:
    """The steps that dnf would take with `streams` enabled. folder: for its cache and log. Raises
    Refused, Locked, OSError."""
    view = open_view(request.rootfs, folder, streams, private(folder), request.fetch_timeout_s)
    if not request.install and not request.remove:
        return []
    argv = [
        argument
        for argument in dnf(request, *private(folder), "--assumeno", *arguments_of(request, folder))
        if argument != "-q"
    ]
    code, output = run(request.rootfs, view(argv), request.lock_timeout_s + request.fetch_timeout_s)
    pid = waits_for(output)
    if pid and code not in (0, ABORTED):
        raise Locked(f"dnf is not free: it waits for pid {pid} ({command_line(pid)})")
    steps = parse_transaction(
        output, {name: package.version for name, package in installed.packages.items()}
    )
    if not steps and code:
        lines = [
            " ".join(line.split())
            for line in output.splitlines()
            if line.strip() and not line.startswith("Last metadata")
        ]
        raise Refused(" | ".join(lines[:4])[:600])
    return steps


def offers_of(request: Request, names: Iterable[str], folder: str) -> Offers:
    """{name: [{version, origin}]}, newest first, of every module stream. folder: of cache and
    log."""
    every = sorted(names)
    if not every:
        return {}
    query = [
        *private(folder),
        ALL_STREAMS,
        "repoquery",
        "--available",
        "--showduplicates",
        "--qf",
        OFFERED,
        *every,
    ]
    _code, output = run(request.rootfs, dnf(request, *query), request.fetch_timeout_s)
    offers: Offers = {}
    for name, version, _architecture, origin in parse_lines(output):
        row = {"version": version, "origin": origin}
        if row not in offers.setdefault(name, []):
            offers[name].append(row)
    for rows in offers.values():  # dnf sorts the lines of a custom format as texts
        rows.sort(key=lambda row: rpm_version_key(row["version"]), reverse=True)
    return offers


def fetch_old(request: Request, folder: str, rows: Sequence[Row]) -> Tuple[List[str], List[str]]:
    """(files, lines for missing packages): fetches old packages and sets `deb` (here: the rpm) of
    every row that a repository still offers."""
    rootfs, path = request.rootfs, f"{folder}/{OLD}"
    place = place_of(rootfs, path)
    os.makedirs(place, mode=0o700, exist_ok=True)
    for row in rows:
        package = f"{row['name']}-{row['before']}.{row['architecture']}"
        run(
            rootfs,
            dnf(request, ALL_STREAMS, "download", "--destdir", path, package),
            request.fetch_timeout_s,
        )
        file_name = f"{row['name']}-{row['before'].split(':')[-1]}.{row['architecture']}.rpm"
        if os.path.isfile(os.path.join(place, file_name)):
            row["deb"] = f"{OLD}/{file_name}"
    missing = [
        f"{row['name']} {row['before']}: no repository has it any more"
        for row in rows
        if row["deb"] is None
    ]
    return [os.path.basename(row["deb"]) for row in rows if row["deb"]], missing


def refetch(rootfs: str, folder: str, row: Row, check: bool) -> bool:
    """restore_plan.Refetch. A package that a repository offers is fetched into a private folder and
    compared."""
    if not row.get("sha256"):
        return False
    path = private_folder(rootfs)
    try:
        package = f"{row['name']}-{row['before']}.{row['architecture']}"
        argv = dnf(Request(), *private(path), ALL_STREAMS, "download", "--destdir", path, package)
        run(rootfs, argv, Request().fetch_timeout_s)
        place = place_of(rootfs, f"{path}/{os.path.basename(row['deb'])}")
        if check:
            return os.path.isfile(place) and sha256_of(place) == row["sha256"]
        return replace_kept(rootfs, folder, row, place)
    except FileNotFoundError:
        return False  # an image without dnf has no repository
    finally:
        shutil.rmtree(place_of(rootfs, path), ignore_errors=True)


def fetch_new(request: Request, streams: Streams, folder: str) -> None:
    """Fetches all new packages into dnf's cache. folder: of a view. Raises Refused."""
    view = open_view(request.rootfs, folder, streams, private(folder), request.fetch_timeout_s)
    if request.install:
        options = ["-y", "--downloadonly", *(["--refresh"] if request.update_cache else [])]
        code, output = run(
            request.rootfs,
            view(dnf(request, *options, *arguments_of(request, folder))),
            request.fetch_timeout_s,
        )
        if code:
            lines = output.split("\n")[-4:]
            raise Refused(f"a package could not be fetched: {' | '.join(lines)[-400:]}")


def apply_commands(request: Request, streams: Streams) -> List[List[str]]:
    """argvs to run in the systemd unit."""
    os.makedirs(place_of(request.rootfs, WORK), mode=0o700, exist_ok=True)
    argvs = enabling(streams, ["--cacheonly"])
    if request.install or request.remove:
        argvs.append(dnf(request, "-y", "--cacheonly", *arguments_of(request, WORK)))
    return [inside(request.rootfs, argv) for argv in argvs]


def restore_commands(
    rootfs: str, folder: str, saved: Dict[str, Any], steps: Sequence[Step]
) -> List[List[str]]:
    """argvs that restore the former packages, with rpm itself, because it needs no repository."""
    rows = {row["name"]: row for row in saved["packages"]}
    files = [f"{folder}/{rows[step.name]['deb']}" for step in steps if step.after]
    gone = [step.name for step in steps if step.after is None]
    argvs = [["rpm", "--erase", "--nodeps", *gone]] if gone else []
    argvs += [["rpm", "--upgrade", "--oldpackage", "--replacepkgs", *files]] if files else []
    return [inside(rootfs, argv) for argv in argvs]
