"""The inventory and the options of a run are commands: they are taken only from a run that this
user's own unhang made."""

from __future__ import annotations

import json
import shutil
import stat

import pytest

from unhang.core.errors import UserError
from unhang.core.run.own_runs import (
    KEY_BYTES,
    KEY_NAME,
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
    return place / "state" / "unhang" / KEY_NAME


def test_another_user_has_another_key(folder, tmp_path, monkeypatch):
    mark_as_own(folder)
    another_user(monkeypatch, tmp_path)
    assert not is_own(folder)


def test_the_key_is_private(folder, tmp_path, monkeypatch):
    key = another_user(monkeypatch, tmp_path)
    mark_as_own(folder)
    assert [stat.S_IMODE(place.stat().st_mode) for place in (key, key.parent)] == [0o600, 0o700]
    assert is_own(folder)


def linked(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "change",
    [
        linked,
        lambda path: path.chmod(0o640),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
def test_a_key_that_others_may_know_or_that_is_not_whole_is_none(
    folder, tmp_path, monkeypatch, change
):
    key = another_user(monkeypatch, tmp_path)
    mark_as_own(folder)
    change(key)
    assert not is_own(folder)


def test_the_key_that_an_earlier_release_wrote_stays_good(folder, tmp_path, monkeypatch):
    key = another_user(monkeypatch, tmp_path)
    mark_as_own(folder)
    key.write_bytes(b"unhang/kept/1\n" + b"k" * KEY_BYTES + b"d" * KEY_BYTES + key.read_bytes())
    assert is_own(folder)


def test_without_a_state_folder_no_run_is_known_as_an_own_one(folder, tmp_path, monkeypatch):
    another_user(monkeypatch, tmp_path)
    (tmp_path / "state").write_text("no folder")
    mark_as_own(folder)
    assert not is_own(folder)
    monkeypatch.setattr("unhang.core.run.own_runs.state_folder", lambda _: None)  # without a home
    mark_as_own(folder)
    assert not is_own(folder)


def test_a_run_of_documents_alone_needs_no_mark(folder):
    write(folder, inventory=None)
    assert own_inventories(folder) == []
