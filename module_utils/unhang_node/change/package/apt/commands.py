"""Calls apt, with preferences, lists and caches that may differ from the node's own, and a deadline
for each call."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ....facts.sections.package_database import STATUS
from ...atomic_files import place_of, write_text
from ..programs import error_lines, run
from ..values import Offers, Refused, Step, View
from .output import parse_fields, parse_madison, parse_simulation

PREFERENCES, MAIN = "/etc/apt/preferences.d", "/etc/apt/preferences"
LISTS = "/var/lib/apt/lists"
CONF = "view.conf"
# A mirror that stalls is abandoned and then tried once more.
NETWORK = [
    "-o",
    "Acquire::http::Timeout=30",
    "-o",
    "Acquire::https::Timeout=30",
    "-o",
    "Acquire::Retries=1",
]
# only root may write into saved states, so apt's own user could not
AS_ROOT = ["-o", "APT::Sandbox::User=root"]
DPKG = [
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "Dpkg::Options::=--force-confold",
    "-o",
    "Dpkg::Use-Pty=0",
]
BARE = ["-o", "APT::Install-Recommends=0", "-o", "APT::Get::AutomaticRemove=0"]
# unhang itself judges downgrades and holds, and names the packages; apt would only report "held
# broken packages".
ALLOW = ["--allow-downgrades", "--allow-change-held-packages", "--ignore-hold"]


def make_view(
    rootfs: str,
    folder: str,
    without: Sequence[str] = (),
    more: Optional[Mapping[str, Optional[str]]] = None,
    private: bool = False,
) -> View:
    """A view with apt's caches in `folder`, so that a simulation leaves nothing behind. without:
    files of /etc/apt/preferences.d that apt must not read; more: {file name: text or None} that it
    reads in addition or instead. private: lists are in `folder` too, and the node's hooks are off:
    apt then writes nothing outside of it."""
    more = more or {}
    place = place_of(rootfs, folder)
    own = place + "/preferences.d"
    shutil.rmtree(own, ignore_errors=True)
    os.makedirs(own, mode=0o755)
    _copy_files(place_of(rootfs, PREFERENCES), own, {*without, *more})
    for name, text in sorted(more.items()):
        if text is not None:
            write_text(own + "/" + name, text)
    os.makedirs(place + "/cache/archives/partial", exist_ok=True)
    options = [
        "-o",
        f"Dir::Etc::PreferencesParts={folder}/preferences.d",
        "-o",
        f"Dir::Cache={folder}/cache",
    ]
    return View(
        rootfs=rootfs,
        options=options + (_private_options(rootfs, folder) if private else []),
        folder=folder,
    )


def _copy_files(source: str, target: str, without: Set[str]) -> None:
    for name in sorted(os.listdir(source)) if os.path.isdir(source) else []:
        if name not in without and os.path.isfile(source + "/" + name):
            shutil.copy2(source + "/" + name, target + "/" + name)


def _private_options(rootfs: str, folder: str) -> List[str]:
    place = place_of(rootfs, folder)
    os.makedirs(place + "/lists/partial", exist_ok=True)
    _copy_files(place_of(rootfs, LISTS), place + "/lists", {"lock"})
    # Update hooks leave stamps and caches behind.
    write_text(
        place + "/" + CONF,
        "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear"
        " APT::Update::Post-Invoke-Success;\n",
    )
    # apt logs simulations too, and would overwrite the log of the last real run.
    return [
        "-c",
        f"{folder}/{CONF}",
        "-o",
        f"Dir::State::Lists={folder}/lists",
        "-o",
        f"Dir::Log={folder}",
        *AS_ROOT,
    ]


def update(view: View, deadline_s: float) -> List[str]:
    """Fetches the lists; returns the errors as lines."""
    code, output = run(
        view.rootfs,
        ["apt-get", "-q", *view.options, *NETWORK, "-o", "Acquire::Languages=none", "update"],
        deadline_s,
    )
    lines = error_lines(output)
    # "Err" without an "E:" line is a file of the repository that apt does not need.
    return lines if code else [line for line in lines if line.startswith(("E:", "W: "))]


def arguments_of(install: Mapping[str, str], remove: Iterable[str]) -> List[str]:
    """A request as arguments of apt-get. install: {name: version or ""}."""
    return [
        f"{name}={version}" if version else name for name, version in sorted(install.items())
    ] + [name + "-" for name in sorted(remove)]


def simulate(view: View, arguments: Sequence[str]) -> List[Step]:
    """The steps that apt would take. Raises Refused with apt's reason, OSError."""
    argv = ["apt-get", "-q", "--simulate", *view.options, *BARE, *ALLOW, "install", *arguments]
    code, output = run(view.rootfs, argv)
    if code:
        raise Refused(reason_of(output))
    if "cannot be authenticated" in output:
        raise Refused(
            "the repository has no signature that this node knows; install its key and fetch the"
            " lists again"
        )
    return parse_simulation(output)


def pinning_files(view: View, arguments: Sequence[str]) -> List[str]:
    """The files of preferences without which apt would not refuse the request: one of them, else
    all together; none if they are not the reason."""
    parts, trial = view.folder + "/preferences.d", view.folder + "/unpinned"
    source, target = place_of(view.rootfs, parts), place_of(view.rootfs, trial)
    names = sorted(os.listdir(source)) + [MAIN] * os.path.exists(place_of(view.rootfs, MAIN))
    for group in [[name] for name in names] + [names] * (len(names) > 1):
        shutil.rmtree(target, ignore_errors=True)
        os.makedirs(target)
        _copy_files(source, target, set(group))
        options = [*view.options, "-o", "Dir::Etc::PreferencesParts=" + trial]
        options += ["-o", "Dir::Etc::Preferences=/dev/null"] if MAIN in group else []
        with contextlib.suppress(Refused):
            simulate(view._replace(options=options), arguments)
            return [name if name == MAIN else f"{PREFERENCES}/{name}" for name in group]
    return []


def still_needed(view: View, leaving: Set[str], arguments: Sequence[str]) -> Set[str]:
    """Names among `leaving` that apt would install again for the request, because package families
    share some. apt is run over a copy of dpkg's status without them. arguments: of the request,
    without installed packages; if there are none, apt repairs the dependencies that are missing
    then, which it does only without another request."""
    with open(place_of(view.rootfs, STATUS), encoding="utf-8", errors="surrogateescape") as source:
        stanzas = source.read().split("\n\n")
    kept = [
        stanza
        for stanza in stanzas
        if stanza.strip("\n").split("\n", 1)[0][len("Package: ") :] not in leaving
    ]
    path = view.folder + "/status"
    with open(
        place_of(view.rootfs, path), "w", encoding="utf-8", errors="surrogateescape"
    ) as target:
        target.write("\n\n".join(kept))
    try:
        steps = simulate(
            view._replace(options=[*view.options, "-o", "Dir::State::status=" + path]),
            ["--fix-broken", *arguments],
        )
    except Refused:
        return set()  # the simulation of the request is refused next, with the reason
    return {step.name.split(":")[0] for step in steps if step.action == "install"} & set(leaving)


def reason_of(output: str) -> str:
    """apt's reason in one line."""
    lines = [line.strip() for line in output.splitlines()]
    reasons = [
        line for line in lines if line.startswith("E: ") or " : " in line or ": Depends: " in line
    ]
    return (
        " | ".join(dict.fromkeys(" ".join(line.split()) for line in reasons))[:600]
        or " | ".join(lines[-3:])[:600]
    )


def offers_of(view: View, names: Iterable[str]) -> Offers:
    """{name: [{version, origin}]}, newest first; without names that no repository offers."""
    every = sorted(names)
    return (
        parse_madison(run(view.rootfs, ["apt-cache", *view.options, "madison", *every])[1])
        if every
        else {}
    )


def sizes_of(view: View, arguments: Sequence[str]) -> Dict[str, Tuple[int, int]]:
    """{name: (download bytes, installed bytes)} of `name=version` arguments, from the lists."""
    if not arguments:
        return {}
    _code, output = run(view.rootfs, ["apt-cache", *view.options, "show", *arguments])
    rows = parse_fields(output, ("Package", "Size", "Installed-Size"))
    return {
        str(row["Package"]): (int(row["Size"] or 0), int(row["Installed-Size"] or 0) * 1024)
        for row in rows
        if row["Package"]
    }


def known_names(view: View) -> List[str]:
    """All package names in apt's cache."""
    return run(view.rootfs, ["apt-cache", *view.options, "pkgnames"])[1].split()
