"""Parses the mount table, the type of the file system below a path without touching the path, and
/etc/fstab (fstab(5), systemd.mount(5))."""

from __future__ import annotations

from ..named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Mount(NamedTuple):
    """One line of the mount table. device: "major:minor"; subtree: which folder of the file system
    is mounted, "/" for all of it."""

    point: str
    fs_type: str
    source: str
    options: list[str]
    device: str
    subtree: str


# A call on one of these can wait for a server that no longer answers.
NETWORK_FS = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "mmfs",
        "beegfs",
        "ceph",
        "9p",
        "afs",
        "glusterfs",
        "wekafs",
        "pvfs2",
        "orangefs",
        "autofs",
        "ocfs2",
        "gfs2",
        "virtiofs",
        "panfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.s3fs",
        "fuse.juicefs",
        "fuse.mount_daos",
        "daos",
    ]
)
ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


def parse_mountinfo(text: str) -> list[Mount]:
    """[Mount] of /proc/<pid>/mountinfo, in mount order; lines of another form are skipped."""
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if separator and len(left) >= 6 and len(right) >= 2:
            options = left[5] + ("," + right[2] if len(right) > 2 else "")
            mounts.append(
                Mount(
                    point=unescape(left[4]),
                    fs_type=right[0],
                    source=unescape(right[1]),
                    options=options.split(","),
                    device=left[2],
                    subtree=unescape(left[3]),
                )
            )
    return mounts


def unescape(word: str) -> str:
    """A path as the mount table escapes it, in plain characters."""
    if "\\" in word:
        for escaped, plain in ESCAPES:
            word = word.replace(escaped, plain)
    return word


def mount_of(mounts: Sequence[Mount], path: str) -> Mount | None:
    """The Mount that holds `path` (of the longest matching mount points the one mounted last), or
    None."""
    best = None
    for mount in mounts:
        point = mount.point.rstrip("/")
        if (path == point or path.startswith(point + "/")) and (
            best is None or len(point) >= len(best.point.rstrip("/"))
        ):
            best = mount
    return best


def is_network(mount: Mount | None) -> bool:
    """True when the mount is a network file system, or an automount of one."""
    return mount is not None and mount.fs_type in NETWORK_FS


LATER = frozenset(["noauto", "x-systemd.automount", "bind", "rbind"])
NO_MOUNT = frozenset(["swap", "none", "ignore", "autofs"])
PATHS = 256


def parse_fstab(text: str) -> list[str]:
    """Mount points that the boot mounts, in the order of the file; without swap, noauto and
    automounts."""
    points: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3 or words[0].startswith("#"):
            continue
        point = unescape(words[1]).rstrip("/") or "/"
        options = set((words[3] if len(words) > 3 else "defaults").split(","))
        if (
            point.startswith("/")
            and words[2] not in NO_MOUNT
            and not options & LATER
            and point not in points
        ):
            points.append(point[:1024])
    return points[:PATHS]
