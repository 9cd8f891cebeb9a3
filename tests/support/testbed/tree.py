"""The Debian tree that all nodes share, built once per recipe and never written again."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

SUITE = "bookworm"
PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,openssh-server,python3,"
    "python3-apt,"  # without it Ansible's apt module fails in check mode
    "iproute2,kmod,ca-certificates,procps"
)
FILES = pathlib.Path(__file__).with_name("node_files")
# Runs in the tree when all packages are installed. Each node has host keys of its own, so none may
# be shared.
FINISH = (
    'rm -f "$1"/etc/ssh/ssh_host_*',
    'chroot "$1" systemctl -q enable systemd-networkd.service testbed-hardware.service',
    # Periodic work of a node would look like a change made by an audit.
    (
        'chroot "$1" systemctl -q mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer'
        " e2scrub_all.timer fstrim.timer systemd-tmpfiles-clean.timer"
    ),
    'touch "$1/etc/default/locale"',  # PAM reports its absence at every login
    'chroot "$1" useradd --create-home --shell /bin/bash auditor',
)


class TreeError(Exception):
    """The tree could not be built; the text says why."""


def recipe_key(suite=SUITE, more=()):
    """Twelve hexadecimal digits that change whenever the content of the tree changes."""
    digest = hashlib.sha256("\n".join((suite, ",".join((PACKAGES, *more)), *FINISH)).encode())
    for path in sorted(FILES.rglob("*")):
        if path.is_file():
            digest.update(
                f"{path.relative_to(FILES)} {path.stat().st_mode:o}\n".encode() + path.read_bytes()
            )
    return digest.hexdigest()[:12]


def ready_tree(cache, suite=SUITE, more=()):
    """The tree's folder below `cache`, built now (half a minute) if it is missing. suite: Debian's;
    more: packages besides. Raises TreeError."""
    cache.mkdir(parents=True, exist_ok=True)
    tree = cache / f"tree-{recipe_key(suite, more)}"
    if tree.is_dir():
        return tree  # it is moved there as a whole
    with open(cache / f"lock-{tree.name}", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second session waits for the first one's build
        if not tree.is_dir():
            build(tree, suite, more)
    return tree


def build(tree, suite, more):
    """Build the tree in a temporary folder and move it to its place as a whole."""
    partial = tree.with_suffix(".partial")
    if partial.exists():  # left by a build that was interrupted
        shutil.rmtree(partial)
    # In mounts of its own, so that no other process keeps them busy, and none remains when the
    # build ends, in whatever way.
    argv = [
        "unshare",
        "--mount",
        "mmdebstrap",
        "--variant=minbase",
        "--components=main",
        f"--include={','.join((PACKAGES, *more))}",
    ]
    argv += [
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
    ]
    argv += [f"--customize-hook=sync-in {FILES} /"]
    argv += [f"--customize-hook={step}" for step in FINISH]
    if shutil.which("mmdebstrap") is None:
        raise TreeError(
            "mmdebstrap is not installed; `make test` as root installs what"
            " tests/system-packages.txt lists"
        )
    log = tree.parent / "build.log"
    with open(log, "w", encoding="utf-8") as output:
        code = subprocess.run(
            [*argv, suite, str(partial)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        ).returncode
    if code:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(partial)
        last = " | ".join(log.read_text(encoding="utf-8").strip().splitlines()[-3:])
        raise TreeError(f"mmdebstrap ended with code {code}: {last} (all of it: {log})")
    os.rename(partial, tree)
