"""Packages for some nodes only, as a layer over the shared tree: apt itself installs them once, and
nodes of other test beds do not get them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess

# Runs in a mount namespace of its own: $1 is the tree, $2 the folder of the layer, the rest
# packages.
INSTALL = """
set -e
tree=$1; target=$2; shift 2
work=$(mktemp -d)
mount -t tmpfs none "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay -o "lowerdir=$tree,upperdir=$work/upper,workdir=$work/work" overlay "$work/root"
mount -t proc proc "$work/root/proc"
cp /etc/resolv.conf "$work/root/etc/resolv.conf" || true
printf '#!/bin/sh\\nexit 101\\n' > "$work/root/usr/sbin/policy-rc.d"
chmod 755 "$work/root/usr/sbin/policy-rc.d"
chroot "$work/root" apt-get -q update
DEBIAN_FRONTEND=noninteractive chroot "$work/root" apt-get -q install -y --no-install-recommends "$@"
rm -rf "$work/root/usr/sbin/policy-rc.d" "$work/upper/var/lib/apt/lists" "$work/upper/var/cache" "$work/upper/usr/share/doc" "$work/upper/usr/share/man"
umount "$work/root/proc" "$work/root"
cp -a "$work/upper" "$target"
umount "$work"
rmdir "$work"
"""


def ready(cache, tree, packages):
    """The layer's folder below `cache`, for this tree; installed now (half a minute) if it is
    missing."""
    folder = (
        cache
        / f"{packages[0]}-{tree.name.partition('-')[2]}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:8]}"
    )
    with open(cache / "layer.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            argv = [
                "unshare",
                "--mount",
                "sh",
                "-c",
                INSTALL,
                "install",
                str(tree),
                str(partial),
                *packages,
            ]
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if done.returncode:
                raise OSError(
                    f"{packages[0]} could not be installed for the nodes: {done.stdout[-500:]}"
                    f" {done.stderr[-500:]}"
                )
            os.rename(partial, folder)
    return folder


def user_of(folder, name):
    """uid of a user that the packages created."""
    for line in (folder / "etc" / "passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == name:
            return int(fields[2])
    raise LookupError(name)
