"""The same change of packages with dnf 4 and rpm: looked at beforehand, old packages kept, run apart, read back.

What it does not have: packages that no repository has any more are not built again, nothing is ever half configured, and pins are version locks (package_pin).
In its place it has module streams (dnf_modules).
"""

from __future__ import annotations

import os

from ...parse.dpkg import Package
from ...root import Root
from ...sections.package_database import RPM_FILES, RPM_FOLDERS, STATUS
from ..files import place_of, read_state, write_text
from .apt import Refused, inside, run
from .dnf_modules import ALL_STREAMS, enabling, open_view
from .dnf_output import parse_lines, parse_transaction, version_key, waits_for
from .installed import Installed
from .locks import process_words
from .manager import Locked
from .saved import OLD
from .unit import WORK

INSTALLED = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\t%{SOURCERPM}\\n"
OFFERED = "%{name}\\t%{epoch}:%{version}-%{release}\\t%{arch}\\t%{repoid}\\n"
ABORTED = 1  # dnf's exit code when it was not allowed to go on


def is_rpm_node(rootfs):
    """True where packages are rpm's, and not dpkg's too."""
    root = Root([rootfs])
    return not root.exists(STATUS) and any(root.exists("{}/{}".format(folder, name)) for folder in RPM_FOLDERS for name in RPM_FILES)


def read_installed_rpms(rootfs):
    """Installed, as package_installed has it. Raises ValueError, OSError."""
    code, said = run(rootfs, ["rpm", "-qa", "--qf", INSTALLED])
    if code:
        raise ValueError("rpm -qa ended with {}: {}".format(code, said.strip()[-200:]))
    packages, sources = {}, {}
    for name, version, architecture, source in parse_lines(said):
        packages[name] = Package(name, version, architecture, False, "installed")  # of several kernels the last one
        sources[name] = source.rsplit("-", 2)[0]
    ours = {lock.rsplit("-", 2)[0] for lock in read_state(rootfs, "package_hold").get("locks", ())}
    return Installed(packages, [], False, set(), ours, "", sources)


def dnf(request, *arguments):
    """argv of dnf under a request."""
    options = ["--setopt=install_weak_deps={}".format(bool(request["recommends"]))]
    options += ["--disableplugin=versionlock"] if request["change_held"] else []
    return ["dnf", "-q"] + options + list(arguments)


def private(folder):
    """Options with which a look leaves the node's cache and log alone."""
    return ["--setopt=cachedir={}/cache".format(folder), "--setopt=logdir={}".format(folder), "--disableplugin=generate_completion_cache"]


def words_of(rootfs, request, folder):
    """What dnf is told to do. To install and to remove in one transaction takes its shell, whose lines lie in a file of `folder`. Raises OSError."""
    install = ["{}-{}".format(name, version) if version else name for name, version in sorted(request["install"].items())]
    erasing = ["--allowerasing"] if request["allow_remove"] and install else []
    if not install:
        return ["remove"] + sorted(request["remove"])
    if not request["remove"]:
        return ["install"] + erasing + install
    path = folder + "/transaction"
    write_text(place_of(rootfs, path), "remove {}\ninstall {}\nrun\n".format(" ".join(sorted(request["remove"])), " ".join(install)), 0o600)
    return erasing + ["shell", path]


def simulate(rootfs, request, installed, folder, streams):
    """[Step] that dnf would take, with `streams` enabled. folder: of its cache and log. Raises Refused, Locked, OSError."""
    view = open_view(rootfs, folder, streams, private(folder), request["fetch_timeout_s"])
    if not request["install"] and not request["remove"]:
        return []
    argv = [word for word in dnf(request, *(private(folder) + ["--assumeno"] + words_of(rootfs, request, folder))) if word != "-q"]
    code, said = run(rootfs, view(argv), request["lock_timeout_s"] + request["fetch_timeout_s"])
    pid = waits_for(said)
    if pid and code not in (0, ABORTED):
        raise Locked("expected dnf to be free, found that it waits for pid {} ({})".format(pid, process_words(pid)))
    steps = parse_transaction(said, {name: package.version for name, package in installed.packages.items()})
    if not steps and code:
        lines = [" ".join(line.split()) for line in said.splitlines() if line.strip() and not line.startswith("Last metadata")]
        raise Refused(" | ".join(lines[:4])[:600])
    return steps


def offers_of(rootfs, request, names, folder):
    """{name: [{version, origin}]}, newest first, of every module stream. folder: of cache and log."""
    if not names:
        return {}
    query = private(folder) + [ALL_STREAMS, "repoquery", "--available", "--showduplicates", "--qf", OFFERED] + sorted(names)
    _code, said = run(rootfs, dnf(request, *query), request["fetch_timeout_s"])
    offers = {}
    for name, version, _architecture, origin in parse_lines(said):
        row = {"version": version, "origin": origin}
        if row not in offers.setdefault(name, []):
            offers[name].append(row)
    for rows in offers.values():  # dnf sorts lines of its own format as texts
        rows.sort(key=lambda row: version_key(row["version"]), reverse=True)
    return offers


def fetch_old(rootfs, request, folder, rows):
    """(files, what is missing as lines): sets `deb` (here: the rpm) of every row that a repository still has."""
    path = "{}/{}".format(folder, OLD)
    place = place_of(rootfs, path)
    os.makedirs(place, mode=0o700, exist_ok=True)
    for row in rows:
        word = "{}-{}.{}".format(row["name"], row["before"], row["architecture"])
        run(rootfs, dnf(request, ALL_STREAMS, "download", "--destdir", path, word), request["fetch_timeout_s"])
        file_name = "{}-{}.{}.rpm".format(row["name"], row["before"].split(":")[-1], row["architecture"])
        if os.path.isfile(os.path.join(place, file_name)):
            row["deb"] = "{}/{}".format(OLD, file_name)
    missing = ["{} {}: no repository has it any more".format(row["name"], row["before"]) for row in rows if row["deb"] is None]
    return [os.path.basename(row["deb"]) for row in rows if row["deb"]], missing


def fetch_new(rootfs, request, streams, folder):
    """Everything new into dnf's cache; folder: of a view. Raises Refused."""
    view = open_view(rootfs, folder, streams, private(folder), request["fetch_timeout_s"])
    if request["install"]:
        options = ["-y", "--downloadonly"] + (["--refresh"] if request["update_cache"] else [])
        code, said = run(rootfs, view(dnf(request, *(options + words_of(rootfs, request, folder)))), request["fetch_timeout_s"])
        if code:
            raise Refused("expected to fetch every package, found: {}".format(" | ".join(said.split("\n")[-4:])[-400:]))


def apply_commands(rootfs, request, streams):
    """argvs of what is run apart."""
    os.makedirs(place_of(rootfs, WORK), mode=0o700, exist_ok=True)
    argvs = enabling(streams, ["--cacheonly"])
    if request["install"] or request["remove"]:
        argvs.append(dnf(request, "-y", "--cacheonly", *words_of(rootfs, request, WORK)))
    return [inside(rootfs, argv) for argv in argvs]


def restore_commands(rootfs, folder, saved, steps):
    """argv that bring rpm back to what was; rpm itself, for no repository has to be there."""
    rows = {row["name"]: row for row in saved["packages"]}
    files = ["{}/{}".format(folder, rows[step.name]["deb"]) for step in steps if step.after]
    gone = [step.name for step in steps if step.after is None]
    argvs = [["rpm", "--erase", "--nodeps"] + gone] if gone else []
    argvs += [["rpm", "--upgrade", "--oldpackage", "--replacepkgs"] + files] if files else []
    return [inside(rootfs, argv) for argv in argvs]
