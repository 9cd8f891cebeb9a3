"""The inventory and the options of a run are commands: they are taken only from a run that this user's own unhang made."""

from __future__ import annotations

import json
import shutil

import pytest

from unhang.base.errors import UserError
from unhang.run.own_runs import MARK, is_own, mark_as_own, own_inventories, own_options

RUN = {"schema": "unhang/run/1", "id": "20261124T000000Z-0123456789", "started": "2026-11-24T00:00:00Z", "finished": None, "hosts": ["a"], "limit": None}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / RUN["id"]
    place.mkdir()
    write(place)
    return place


def write(place, **more):
    (place / "run.json").write_text(json.dumps({**RUN, "inventory": ["/srv/hosts.sh"], "options": ["--become"], **more}))


def test_a_run_that_was_made_here_keeps_its_inventory_and_options(folder):
    mark_as_own(folder)
    assert is_own(folder)
    assert own_inventories(folder) == ["/srv/hosts.sh"]
    assert own_options(folder) == ["--become"]
    write(folder, finished="2026-11-24T00:01:00Z", hosts=["a", "b"])  # what comes later is not in the mark
    assert is_own(folder)


def test_a_run_without_a_mark_is_refused_with_the_inventory_that_it_names(folder):
    with pytest.raises(UserError, match=r"made here with unhang audit.*/srv/hosts\.sh.*--inventory"):
        own_inventories(folder)
    assert own_options(folder) == []


@pytest.mark.parametrize("changed", [{"inventory": ["/tmp/evil"]}, {"options": ["--vault-password-file", "/tmp/v.sh"]}, {"id": "20261124T000000Z-9999999999"}])
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


def test_another_user_has_another_key(folder, tmp_path, monkeypatch):
    mark_as_own(folder)
    monkeypatch.setattr("unhang.base.kept_files._wanted_folder", lambda: tmp_path / "of-somebody-else")
    assert not is_own(folder)


def test_a_run_of_documents_alone_needs_no_mark(folder):
    write(folder, inventory=None)
    assert own_inventories(folder) == []
