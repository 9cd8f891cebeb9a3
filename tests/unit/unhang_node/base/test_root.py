"""Root: live, layered and recorded trees are read in the same way, and a recorded one never shows
this machine's own files."""

from __future__ import annotations

import os

import pytest

from unhang_node.base.root import Root


@pytest.fixture
def layers(tmp_path):
    """Two layers: the first has /etc/a; the second /etc/a, /etc/b and an empty folder."""
    for layer, names in (("top", ("a",)), ("base", ("a", "b"))):
        (tmp_path / layer / "etc").mkdir(parents=True)
        for name in names:
            (tmp_path / layer / "etc" / name).write_text(layer)
    (tmp_path / "base" / "empty").mkdir()
    return tmp_path


def test_the_first_layer_that_has_a_path_wins(layers):
    root = Root([str(layers / "top"), str(layers / "base")])
    assert (root.text("/etc/a"), root.text("/etc/b")) == ("top", "base")
    assert root.names("/etc") == ["a", "b"]


def test_an_empty_folder_of_a_lower_layer_is_there_and_empty(layers):
    assert Root([str(layers / "top"), str(layers / "base")]).names("/empty") == []


def test_a_missing_path_is_named_as_the_node_names_it(layers):
    root = Root([str(layers / "top")])
    for call in (root.text, root.names, root.stat, root.link, root.resolve):
        with pytest.raises(FileNotFoundError) as caught:
            call("/etc/none")
        assert caught.value.filename == "/etc/none"


def test_an_absolute_link_stays_inside_the_recorded_tree(layers):
    (layers / "top/etc/c").symlink_to("/etc/a")
    (layers / "top/etc/d").symlink_to("/proc/self/environ")
    (layers / "top/etc/e").symlink_to("../../../../../../etc/a")
    root = Root([str(layers / "top")])
    assert root.text("/etc/c") == root.text("/etc/e") == "top"
    assert root.exists("/etc/d") is False
    assert root.link("/etc/c") == "/etc/a"


def test_links_in_a_circle_end(layers):
    (layers / "top/etc/x").symlink_to("y")
    (layers / "top/etc/y").symlink_to("x")
    with pytest.raises(OSError, match="Too many levels"):
        Root([str(layers / "top")]).text("/etc/x")


def test_no_more_than_the_limit_is_read(layers):
    (layers / "top/etc/long").write_bytes(b"x" * 5000)
    assert len(Root([str(layers / "top")]).data("/etc/long", 100)) == 100


def test_a_procfs_that_was_handed_in_stands_for_proc_alone(layers):
    (layers / "procfs").mkdir()
    (layers / "procfs/uptime").write_text("7 7")
    root = Root([str(layers / "base")], procfs=str(layers / "procfs"))
    assert (root.text("/proc/uptime"), root.text("/etc/b")) == ("7 7", "base")


def test_every_call_that_may_block_is_named_first(layers):
    root, calls = Root([str(layers / "top")]), []
    root.watch = calls.append
    root.text("/etc/a")
    root.names("/etc")
    assert "open /etc/a" in calls
    assert "list /etc" in calls


def test_a_recorded_tree_has_only_recorded_sizes(layers):
    root = Root([str(layers / "base")])
    with pytest.raises(FileNotFoundError):
        root.space("/etc")
    (layers / "base/.unhang").mkdir()
    (layers / "base/.unhang/space.json").write_text('{"/etc": {"size_bytes": 5, "free_bytes": 3}}')
    assert root.space("/etc") == (5, 3)


def test_this_machines_sizes_are_those_of_statvfs():
    found = os.statvfs("/")
    assert Root().space("/")[0] == found.f_blocks * found.f_frsize


def test_only_a_real_procfs_counts_as_the_kernels_own(layers):
    (layers / "base/proc").mkdir()
    assert Root([str(layers / "base")]).has_kernel_procfs() is False
    assert Root().has_kernel_procfs() is True


def test_a_fifo_or_a_device_in_a_tree_is_refused_and_never_waited_for(tmp_path):
    (tmp_path / "etc").mkdir()
    os.mkfifo(tmp_path / "etc" / "os-release")
    (tmp_path / "etc" / "zero").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="not a regular file"):
        Root([str(tmp_path)]).text("/etc/os-release")
    with pytest.raises(OSError, match="not a regular file"):
        Root().data("/dev/zero")
    with pytest.raises(IsADirectoryError, match="/etc"):
        Root([str(tmp_path)]).text("/etc")
