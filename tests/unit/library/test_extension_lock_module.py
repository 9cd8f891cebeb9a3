"""The module extension_lock on caches with held and stale locks."""

from __future__ import annotations

import os

import pytest
from fakes.ansible_module import run_module, tree

from unhang_node.change.host.extension_locks import remove_lock


@pytest.fixture
def cache(tmp_path):
    """A cache with two builds that were begun, each with its lock."""
    for name in ("fused", "other"):
        (tmp_path / "cache/py310_cu121" / name).mkdir(parents=True)
        (tmp_path / "cache/py310_cu121" / name / "lock").touch()
        (tmp_path / "cache/py310_cu121" / name / "build.ninja").write_text("rule x\n")
    return tmp_path / "cache"


def unlock(cache, **more):
    return run_module("extension_lock", caches=[str(cache)], **more)


@pytest.fixture
def held(cache):
    """The lock of one build, open in this process as torch keeps it."""
    path = cache / "py310_cu121/fused/lock"
    descriptor = os.open(path, os.O_RDONLY)
    yield path
    os.close(descriptor)


def test_a_lock_that_nobody_holds_goes_and_nothing_else_does(cache):
    answer = unlock(cache)
    assert answer["changed"]
    assert not list(cache.rglob("lock"))
    assert len(list(cache.rglob("build.ninja"))) == 2


def test_a_lock_that_a_process_holds_stays_and_is_reported(cache, held):
    answer = unlock(cache)
    assert answer["before"] == [str(cache / "py310_cu121/other/lock")]
    assert held.exists()
    assert answer["needs_manual_action"] == [{"path": str(held), "why": "a process holds it"}]


def test_second_run_changes_nothing(cache):
    unlock(cache)
    assert not unlock(cache)["changed"]


def test_check_mode_removes_nothing_and_foretells_the_same(cache):
    before = tree(cache)
    foretold = unlock(cache, check=True)
    assert tree(cache) == before
    assert foretold == unlock(cache)


def test_a_lock_that_a_build_took_meanwhile_is_not_removed(held):
    assert not remove_lock(str(held))
    assert held.exists()


def test_a_folder_that_became_a_link_is_not_followed(tmp_path, cache):
    (tmp_path / "link").symlink_to(cache / "py310_cu121/other")
    with pytest.raises(OSError, match="link"):
        remove_lock(str(tmp_path / "link/lock"))
    assert (cache / "py310_cu121/other/lock").exists()


def test_a_cache_that_is_not_there_is_no_fault(tmp_path):
    assert not unlock(tmp_path / "none")["changed"]
