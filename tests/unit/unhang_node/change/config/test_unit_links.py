"""Links that start packages' units at boot, on prepared trees: they are saved and restored."""

from __future__ import annotations

import os

import pytest
from fakes.node_tree import Link, plant

from unhang_node.change.config.unit_links import (
    keep_links,
    read_links,
    restore_links,
    units_in,
    units_to_go,
)
from unhang_node.change.package.apt.installed import units_of

UNIT = "nvidia-fabricmanager.service"
FILE = f"/lib/systemd/system/{UNIT}"
WANTED = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
OTHERS = "/etc/systemd/system/multi-user.target.wants/ssh.service"
OLD, NEW = "nvidia-fabricmanager-535", "nvidia-fabricmanager-550"
NODE = {
    "/usr/lib/systemd/system/": "", "/lib": Link("usr/lib"), f"/usr{FILE}": "[Unit]\n",
    "/usr/lib/systemd/system/ssh.service": "[Unit]\n",
    WANTED: Link(FILE), OTHERS: Link("/lib/systemd/system/ssh.service"),
    "/etc/systemd/system/fm.service": Link(FILE), "/etc/systemd/system/real.service": "[Unit]\n",
    f"/var/lib/dpkg/info/{OLD}.list": f"/.\n/lib\n/lib/systemd/system\n{FILE}\n/lib/systemd/system/{UNIT}.d/10.conf\n/etc/x.service\n",
    f"/var/lib/dpkg/info/{NEW}:amd64.list": f"/.\n/usr{FILE}\n",
}  # fmt: skip


def row(name, before, after):
    return {"name": name, "architecture": "amd64", "before": before, "after": after}


@pytest.fixture
def node(tmp_path):
    """(root of a node with a fabric manager that is enabled, packages.json of a change to another
    branch of it)."""
    root = tmp_path / "node"
    root.mkdir()
    plant(root, NODE)
    rows = [row(OLD, "535.1-1", None), row(NEW, None, "550.1-1")]
    keep_links(str(root), rows, lambda one: units_of(str(root), one))
    return root, {"packages": rows}


def links(root):
    return {
        "/" + str(path.relative_to(root)): os.readlink(path)
        for path in (root / "etc").rglob("*")
        if path.is_symlink()
    }


def restore(node, gone=()):
    root, saved = node
    return restore_links(str(root), saved, gone)


def test_units_and_links_are_noted_once_for_what_is_there(node):
    root, saved = node
    assert units_in(
        [
            FILE,
            "/usr/lib/systemd/system/a.timer",
            "/lib/systemd/system/x.d/y.conf",
            "/etc/systemd/system/b.service",
        ]
    ) == {UNIT, "a.timer"}
    assert saved["packages"][0]["units"] == [UNIT]
    assert saved["packages"][0]["links"] == {WANTED: FILE, "/etc/systemd/system/fm.service": FILE}
    assert "units" not in saved["packages"][1]
    (root / WANTED.lstrip("/")).unlink()
    keep_links(str(root), saved["packages"], lambda _one: set())
    assert saved["packages"][0]["links"][WANTED] == FILE
    assert units_to_go(saved, [OLD, NEW], lambda one: units_of(str(root), one)) == {UNIT}
    assert units_to_go(saved, [OLD], lambda one: units_of(str(root), one)) == set()


def test_what_a_purge_took_away_comes_back_and_what_it_masked_does_not_stay_masked(node):
    root, _saved = node
    before = links(root)
    (root / WANTED.lstrip("/")).unlink()
    (root / "etc/systemd/system/fm.service").unlink()
    plant(
        root,
        {
            f"/etc/systemd/system/{UNIT}": Link("/dev/null"),
            "/etc/systemd/system/multi-user.target.wants/.unhang-" + UNIT: Link("/x"),
        },
    )
    changed = restore(node)
    assert changed == ["/etc/systemd/system/fm.service", WANTED, f"/etc/systemd/system/{UNIT}"]
    assert links(root) == before
    assert restore(node) == []


def test_what_was_disabled_or_masked_before_is_so_again_and_other_units_stay(tmp_path):
    masked = {
        path: content
        for path, content in NODE.items()
        if path not in (WANTED, "/etc/systemd/system/fm.service")
    }
    masked[f"/etc/systemd/system/{UNIT}"] = Link("/dev/null")
    plant(tmp_path, masked)
    rows = [row(OLD, "535.1-1", "535.2-1")]
    keep_links(str(tmp_path), rows, lambda one: units_of(str(tmp_path), one))
    before = links(tmp_path)
    (tmp_path / f"etc/systemd/system/{UNIT}").unlink()
    plant(tmp_path, {f"/etc/systemd/system/graphical.target.requires/{UNIT}": Link(FILE)})
    (tmp_path / OTHERS.lstrip("/")).unlink()
    restore_links(str(tmp_path), {"packages": rows}, ())
    assert links(tmp_path) == {path: target for path, target in before.items() if path != OTHERS}


def test_no_link_is_made_to_a_unit_that_is_gone_and_those_of_packages_that_went_go(node):
    root, saved = node
    (root / f"usr{FILE}").unlink()
    (root / WANTED.lstrip("/")).unlink()
    saved["packages"] = [dict(saved["packages"][0], units=[], links={}), saved["packages"][1]]
    assert restore(node, gone={UNIT}) == ["/etc/systemd/system/fm.service"]
    assert read_links(str(root), [UNIT]) == {}
    saved["packages"][0].update(units=[UNIT], links={WANTED: FILE})
    assert restore(node) == []


def test_a_state_of_an_older_unhang_changes_no_link(node):
    root, saved = node
    before = links(root)
    saved["packages"] = [row(OLD, "535.1-1", None)]
    (root / WANTED.lstrip("/")).unlink()
    assert restore(node) == []
    assert links(root) == {path: target for path, target in before.items() if path != WANTED}
