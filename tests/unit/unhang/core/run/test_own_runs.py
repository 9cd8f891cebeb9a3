"""The inventory and the options of a run are commands: they are taken only from a run that this
user's own unhang made."""

from __future__ import annotations

import json
import shutil
import stat

import pytest

from unhang.core.errors import UserError
from unhang.core.kept_files import KEY_BYTES, keep
from unhang.core.run.own_runs import (
    KEY_NAME,
    KEY_OF,
    MARK,
    is_own,
    mark_as_own,
    own_inventories,
    own_options,
)

RUN = {
    "schema": "unhang/run/1",
    "id": "20261124T000000Z-0123456789",
    "started": "2026-11-24T00:00:00Z",
    "finished": None,
    "hosts": ["a"],
    "limit": None,
}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / RUN["id"]
    place.mkdir()
    write(place)
    return place


def write(place, **more):
    (place / "run.json").write_text(
        json.dumps({**RUN, "inventory": ["/srv/hosts.sh"], "options": ["--become"], **more})
    )


def test_a_run_that_was_made_here_keeps_its_inventory_and_options(folder):
    mark_as_own(folder)
    assert is_own(folder)
    assert own_inventories(folder) == ["/srv/hosts.sh"]
    assert own_options(folder) == ["--become"]
    # what comes later is not in the mark
    write(folder, finished="2026-11-24T00:01:00Z", hosts=["a", "b"])
    assert is_own(folder)


def test_a_run_without_a_mark_is_refused_with_the_inventory_that_it_names(folder):
    with pytest.raises(
        UserError, match=r"made here with unhang audit.*/srv/hosts\.sh.*--inventory"
    ):
        own_inventories(folder)
    assert own_options(folder) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"inventory": ["/tmp/evil"]},
        {"options": ["--vault-password-file", "/tmp/v.sh"]},
        {"id": "20261124T000000Z-9999999999"},
    ],
)
def test_a_mark_holds_for_its_own_run_with_its_inventory_and_options_alone(folder, changed):
    mark_as_own(folder)
    write(folder, **changed)
    assert not is_own(folder)


@pytest.mark.parametrize("mark", ["", "0" * 64, "é", "a" * 5000])
def test_a_forged_mark_is_none(folder, mark):
    mark_as_own(folder)
    (folder / MARK).write_text(mark)
    assert not is_own(folder)


def test_a_mark_is_no_link_and_no_folder(folder, tmp_path):
    mark_as_own(folder)
    shutil.move(folder / MARK, tmp_path / "mark")
    (folder / MARK).symlink_to(tmp_path / "mark")
    assert not is_own(folder)
    (folder / MARK).unlink()
    (folder / MARK).mkdir()
    assert not is_own(folder)


def another_user(monkeypatch, place):
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    monkeypatch.setattr("unhang.core.kept_files._wanted_folder", lambda: place / "cache")
    return place / "state" / "unhang" / KEY_NAME, place / "cache" / KEY_NAME


def test_another_user_has_another_key(folder, tmp_path, monkeypatch):
    mark_as_own(folder)
    another_user(monkeypatch, tmp_path)
    assert not is_own(folder)


def test_the_key_is_private_and_outlives_the_cache(folder, tmp_path, monkeypatch):
    in_state, in_cache = another_user(monkeypatch, tmp_path)
    mark_as_own(folder)
    assert not in_cache.exists()
    assert [stat.S_IMODE(place.stat().st_mode) for place in (in_state, in_state.parent)] == [
        0o600,
        0o700,
    ]
    assert is_own(folder)
    in_state.chmod(0o644)  # somebody else may know it now
    assert not is_own(folder)


def test_a_key_in_the_cache_is_taken_over_and_still_good_beside_another(
    folder, tmp_path, monkeypatch
):
    in_state, in_cache = another_user(monkeypatch, tmp_path)
    keep(KEY_NAME, KEY_OF, b"k" * KEY_BYTES)
    mark_as_own(folder)
    in_cache.unlink()
    assert own_inventories(folder) == ["/srv/hosts.sh"]
    in_cache.write_bytes(in_state.read_bytes())
    in_cache.chmod(0o600)
    # taken over from the cache of another installation
    keep(KEY_NAME, KEY_OF, b"l" * KEY_BYTES, in_state.parent)
    assert is_own(folder)


def test_without_a_state_folder_the_key_is_in_the_cache(folder, tmp_path, monkeypatch):
    in_state, in_cache = another_user(monkeypatch, tmp_path)
    in_state.parent.parent.write_text("no folder")
    mark_as_own(folder)
    assert in_cache.exists()
    assert is_own(folder)


def test_a_run_of_documents_alone_needs_no_mark(folder):
    write(folder, inventory=None)
    assert own_inventories(folder) == []
