"""The files of a run folder and the history are private from their creation, whatever the umask; a
site may share them with a group."""

from __future__ import annotations

import contextlib
import os

import pytest

from unhang.act.rollout.journal import begin
from unhang.judge.fleet.findings import write_findings

AT = "2026-11-20T07:00:00Z"


@contextlib.contextmanager
def umask(wanted):
    before = os.umask(wanted)
    try:
        yield
    finally:
        os.umask(before)


class Watched(list):
    """Findings; while they are written it notes the modes of the files beside them."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.modes = folder, []

    def __iter__(self):
        self.modes = modes(self.folder).values()
        return super().__iter__()


def modes(folder):
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


@pytest.mark.parametrize("given", [0o000, 0o022, 0o077])
def test_findings_are_private_while_they_are_written_and_afterwards(tmp_path, monkeypatch, given):
    monkeypatch.delenv("UNHANG_GROUP", raising=False)
    entries = Watched(tmp_path)
    with umask(given):
        write_findings(tmp_path / "findings.json", {}, entries)
    assert list(entries.modes) == [0o600]
    assert modes(tmp_path) == {"findings.json": 0o600}


@pytest.mark.parametrize("given", [0o002, 0o022, 0o077])
def test_findings_that_the_user_names_have_the_mode_of_his_umask(tmp_path, given):
    with umask(given):
        write_findings(tmp_path / "mine.json", {}, [], is_named=True)
    assert modes(tmp_path) == {"mine.json": 0o666 & ~given}


@pytest.mark.parametrize("given", [0o000, 0o022, 0o077])
def test_the_journal_is_private_from_their_creation(tmp_path, monkeypatch, given):
    monkeypatch.delenv("UNHANG_GROUP", raising=False)
    with umask(given):
        begin(tmp_path, AT, {})
    found = modes(tmp_path)
    assert {"journal.jsonl", "journal.lock"} <= set(found) and set(found.values()) == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another group takes root")
@pytest.mark.parametrize("given", [0o000, 0o022, 0o077])
def test_the_group_of_a_site_reads_them_whatever_the_umask(tmp_path, monkeypatch, given):
    monkeypatch.setenv("UNHANG_GROUP", "daemon")
    with umask(given):
        write_findings(tmp_path / "findings.json", {}, [])
        begin(tmp_path, AT, {})
    found = modes(tmp_path)
    assert {found[name] for name in ("findings.json", "journal.jsonl", "journal.lock")} == {0o640}
