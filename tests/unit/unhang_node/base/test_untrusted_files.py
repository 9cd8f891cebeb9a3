"""Files that another user planted, and file systems that may hang."""

from __future__ import annotations

import os

import pytest
from fakes.node_tree import Link, make_fifo, plant

from unhang_node.base.parse.mounts import parse_mountinfo
from unhang_node.base.root import Root
from unhang_node.base.untrusted_files import (
    NotLocal,
    network_mount_of,
    open_regular,
    read_file,
    read_tail,
    resolve_local,
)

MOUNTS = parse_mountinfo(
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "30 22 0:50 / /home rw - nfs4 server:/home rw\n"
    "31 30 0:51 / /home/local rw - tmpfs tmpfs rw\n"
    "32 22 0:52 / /net rw - autofs auto rw\n"
)


def test_fifo_is_refused_and_never_waited_for(tmp_path):
    make_fifo(tmp_path, "/etc/nccl.conf")
    with pytest.raises(ValueError, match="not a regular file"):
        read_file(Root([str(tmp_path)]), "/etc/nccl.conf")


def test_device_is_refused():
    with pytest.raises(ValueError, match="not a regular file"):
        read_file(Root(), "/dev/zero")


def test_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not a regular file"):
        read_file(plant(tmp_path, {"/etc/nccl.conf/": ""}), "/etc/nccl.conf")


def test_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path):
    root = plant(tmp_path, {"/huge": ""})
    os.truncate(tmp_path / "huge", 1 << 40)
    with pytest.raises(ValueError, match="1099511627776 bytes, at most 1048576"):
        read_file(root, "/huge")


@pytest.mark.parametrize("live", [False, True])
def test_link_is_refused_where_a_user_owns_the_place(tmp_path, live):
    root = plant(
        tmp_path, {"/home/u/.nccl.conf": Link("/etc/shadow"), "/etc/shadow": "root:secret"}
    )
    root, start = (Root(), str(tmp_path)) if live else (root, "")
    with pytest.raises((ValueError, OSError), match="symbolic link"):
        read_file(root, start + "/home/u/.nccl.conf", follow=False)


def test_file_of_another_owner_is_refused(tmp_path):
    root = plant(tmp_path, {"/home/u/.nccl.conf": "NCCL_DEBUG=INFO"})
    with pytest.raises(ValueError, match="belongs to uid"):
        read_file(root, "/home/u/.nccl.conf", follow=False, owner=os.getuid() + 1)
    assert (
        read_file(root, "/home/u/.nccl.conf", follow=False, owner=os.getuid()) == b"NCCL_DEBUG=INFO"
    )


def test_recorded_link_is_followed_inside_the_record(tmp_path):
    root = plant(tmp_path, {"/etc/environment": Link("/srv/env"), "/srv/env": "inside"})
    assert read_file(root, "/etc/environment") == b"inside"


def test_tail_is_the_end_of_the_file(tmp_path):
    root = plant(tmp_path, {"/log": "first\nlast\n"})
    assert read_tail(root, "/log", 5) == b"last\n"


def test_descriptor_does_not_reach_programs_that_are_started(tmp_path):
    descriptor = open_regular(plant(tmp_path, {"/x": "1"}), "/x")
    try:
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/u", "nfs4"),
        ("/home", "nfs4"),
        ("/home/local/u", None),
        ("/homes", None),
        ("/etc", None),
        ("/net/x", "autofs"),
    ],
)
def test_network_file_system_is_told_by_the_name_alone(path, kind):
    mount = network_mount_of(MOUNTS, path)
    assert (mount.fs_type if mount else None) == kind


def test_node_without_any_local_disk_is_still_read():
    assert (
        network_mount_of(parse_mountinfo("22 1 0:1 / / rw - nfs server:/ rw\n"), "/etc/passwd")
        is None
    )


def test_link_to_a_network_file_system_is_not_followed(tmp_path):
    root = plant(tmp_path, {"/usr/local/cuda": Link("/home/cuda"), "/home/cuda/": ""})
    with pytest.raises(NotLocal, match="nfs4 at /home"):
        resolve_local(root, MOUNTS, "/usr/local/cuda")
    assert resolve_local(root, [], "/usr/local/cuda") == "/home/cuda"


def test_what_lies_on_a_network_file_system_is_not_even_looked_at(tmp_path):
    touched = []
    root = plant(tmp_path, {"/home/u/x": "1"})
    root.watch = touched.append
    with pytest.raises(NotLocal):
        resolve_local(root, MOUNTS, "/home/u/x")
    assert touched == []


def test_links_in_a_circle_are_an_error(tmp_path):
    root = plant(tmp_path, {"/a": Link("/b"), "/b": Link("/a")})
    with pytest.raises(OSError, match="Too many levels"):
        resolve_local(root, [], "/a")
