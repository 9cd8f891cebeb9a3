"""Calls apt as a change of packages needs it: with a view of preferences, lists and caches that may differ from the node's own, and a deadline each."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections import namedtuple

from ...sections.package_database import STATUS
from ..files import place_of, write_text
from .apt_output import parse_fields, parse_madison, parse_simulation, said_lines
from .manager import ENVIRONMENT
from .unit import QUIET

# rootfs; options: further options for every program of apt; folder: of the view, a node path.
View = namedtuple("View", "rootfs options folder")
PREFERENCES = "/etc/apt/preferences.d"
LISTS = "/var/lib/apt/lists"
LOOK_FOLDER = "/var/tmp"  # noqa: S108 - mkdtemp makes the folder in it
CALL_DEADLINE_S = 300
CONF = "view.conf"
# A mirror that stalls is given up, and then asked once more.
NETWORK = ["-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30", "-o", "Acquire::Retries=1"]
AS_ROOT = ["-o", "APT::Sandbox::User=root"]  # saved states are root's alone, so that apt's own user could not write into them
DPKG = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Use-Pty=0"]
BARE = ["-o", "APT::Install-Recommends=0", "-o", "APT::Get::AutomaticRemove=0"]
# What may go down and what is held is judged by us, by name; apt would only speak of held broken packages.
ALLOW = ["--allow-downgrades", "--allow-change-held-packages", "--ignore-hold"]
FETCHED = -1  # a code of our own: the deadline passed


class Refused(ValueError):
    """What apt would not do, in one line."""


def make_view(rootfs, folder, without=(), more=None, private=False):
    """A View, with apt's caches in `folder`: a look leaves nothing behind.

    without: file names of /etc/apt/preferences.d that apt is not to see; more: {file name: text or None} in its place.
    private: lists in `folder` too, and no hooks of the node's: apt then writes nothing outside of it.
    """
    place = place_of(rootfs, folder)
    own = place + "/preferences.d"
    shutil.rmtree(own, ignore_errors=True)
    os.makedirs(own, mode=0o755)
    theirs = place_of(rootfs, PREFERENCES)
    for name in sorted(os.listdir(theirs)) if os.path.isdir(theirs) else []:
        if name not in without and name not in (more or {}) and os.path.isfile(theirs + "/" + name):
            shutil.copy2(theirs + "/" + name, own + "/" + name)
    for name, text in sorted((more or {}).items()):
        if text is not None:
            write_text(own + "/" + name, text)
    os.makedirs(place + "/cache/archives/partial", exist_ok=True)
    options = ["-o", "Dir::Etc::PreferencesParts={}/preferences.d".format(folder), "-o", "Dir::Cache={}/cache".format(folder)]
    return View(rootfs, options + (_private_options(rootfs, folder) if private else []), folder)


def _private_options(rootfs, folder):
    place = place_of(rootfs, folder)
    os.makedirs(place + "/lists/partial", exist_ok=True)
    theirs = place_of(rootfs, LISTS)
    for name in sorted(os.listdir(theirs)) if os.path.isdir(theirs) else []:
        if name != "lock" and os.path.isfile(theirs + "/" + name):
            shutil.copy2(theirs + "/" + name, "{}/lists/{}".format(place, name))
    # Hooks of an update leave stamps and caches of their own behind.
    write_text(place + "/" + CONF, "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n")
    return ["-c", "{}/{}".format(folder, CONF), "-o", "Dir::State::Lists={}/lists".format(folder)] + AS_ROOT


def private_folder(rootfs):
    """A new folder for a private view, a node path; on disk, for lists take more room than a node's /tmp may have."""
    return LOOK_FOLDER + "/" + os.path.basename(tempfile.mkdtemp(prefix=".unhang-", dir=place_of(rootfs, LOOK_FOLDER)))


def inside(rootfs, argv):
    """argv as it is run for a node whose / is `rootfs`."""
    return argv if rootfs == "/" else ["chroot", rootfs] + argv


def run(rootfs, argv, deadline_s=CALL_DEADLINE_S, folder=None):
    """(exit code, everything printed) of a program that may be ended without harm; FETCHED when its deadline passed. Raises OSError."""
    child = subprocess.Popen(
        inside(rootfs, argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder,
        env=dict(ENVIRONMENT, **QUIET), start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = child.communicate(timeout=deadline_s)
        return child.returncode, said.decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        said, _ = child.communicate()
        return FETCHED, said.decode("utf-8", "replace") + "\nE: no answer within {:g} s".format(deadline_s)


def update(view, deadline_s):
    """What went wrong while the lists were fetched, as lines; none when all is well."""
    code, said = run(view.rootfs, ["apt-get", "-q"] + view.options + NETWORK + ["-o", "Acquire::Languages=none", "update"], deadline_s)
    told = said_lines(said)
    # An "Err" alone is a file of the repository that apt could do without.
    return told if code else [line for line in told if line.startswith(("E:", "W: "))]


def words_of(install, remove):
    """A request as apt-get takes it. install: {name: version or ""}."""
    return ["{}={}".format(name, version) if version else name for name, version in sorted(install.items())] + [name + "-" for name in sorted(remove)]


def simulate(view, words, recommends):
    """[Step] that apt would take. Raises Refused with apt's reason, OSError."""
    argv = ["apt-get", "-q", "--simulate"] + view.options + ([] if recommends else BARE) + ALLOW + ["install"] + words
    code, said = run(view.rootfs, argv)
    if code:
        raise Refused(reason_of(said))
    if "cannot be authenticated" in said:
        raise Refused("the packages' repository is not signed, or its signature is not known to this node")
    return parse_simulation(said)


def needed_again(view, leaving, words, recommends):
    """Names among `leaving` that apt would bring back for the request: families share some. It is asked over a copy of dpkg's status without them.

    words: of the request, without what is there already; then what those lost is to come back, which apt does only when nothing else is asked for.
    """
    with open(place_of(view.rootfs, STATUS), encoding="utf-8", errors="surrogateescape") as source:
        stanzas = source.read().split("\n\n")
    kept = [stanza for stanza in stanzas if stanza.strip("\n").split("\n", 1)[0][len("Package: ") :] not in leaving]
    path = view.folder + "/status"
    with open(place_of(view.rootfs, path), "w", encoding="utf-8", errors="surrogateescape") as target:
        target.write("\n\n".join(kept))
    try:
        steps = simulate(view._replace(options=view.options + ["-o", "Dir::State::status=" + path]), ["--fix-broken"] + words, recommends)
    except Refused:
        return set()  # the request itself is refused soon, with the reason
    return {step.name.split(":")[0] for step in steps if step.action == "install"} & set(leaving)


def reason_of(said):
    """apt's reason in one line."""
    lines = [line.strip() for line in said.splitlines()]
    telling = [line for line in lines if line.startswith("E: ") or " : " in line or ": Depends: " in line]
    return " | ".join(dict.fromkeys(" ".join(line.split()) for line in telling))[:600] or " | ".join(lines[-3:])[:600]


def offers_of(view, names):
    """{name: [{version, origin}]}, newest first; names without an offer are left out."""
    if not names:
        return {}
    _code, said = run(view.rootfs, ["apt-cache"] + view.options + ["madison"] + sorted(names))
    return parse_madison(said)


def sizes_of(view, words):
    """{name: (download bytes, installed bytes)} of `name=version` words, as the lists have it."""
    if not words:
        return {}
    _code, said = run(view.rootfs, ["apt-cache"] + view.options + ["show"] + words)
    rows = parse_fields(said, ("Package", "Size", "Installed-Size"))
    return {row["Package"]: (int(row["Size"] or 0), int(row["Installed-Size"] or 0) * 1024) for row in rows if row["Package"]}


def known_names(view):
    """Every package name that apt knows."""
    return run(view.rootfs, ["apt-cache"] + view.options + ["pkgnames"])[1].split()
