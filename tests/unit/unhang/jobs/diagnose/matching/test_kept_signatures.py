"""Signatures without a fault are not checked again at the next start, and only exactly these; the
tests of kept_files cover who may write the cache."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from unhang.core import kept_files
from unhang.jobs.diagnose.matching import kept_signatures, signatures
from unhang.jobs.diagnose.matching.signatures import load_signatures

FILES = signatures.signature_files()


@pytest.fixture
def start(tmp_path, monkeypatch):
    """What a start of the program loads, with a folder of its own to keep things in; files in place
    of the catalogue's, or all."""
    place = tmp_path / "kept"
    place.mkdir(mode=0o700)
    monkeypatch.setattr(kept_files, "folder", lambda: place)

    def load(files=FILES):
        monkeypatch.setattr(signatures, "signature_files", lambda: files)
        return load_signatures.__wrapped__()

    return load


def test_second_start_has_the_same_signatures_and_checks_none(start, monkeypatch):
    first = start()
    monkeypatch.setattr(signatures, "shape_faults", lambda row: [f"{row['id']} is checked again"])
    second = start()
    assert [asdict(one) for one in second] == [asdict(one) for one in first] and len(first) > 500
    assert not any("pattern" in vars(one) for one in second), (
        "no pattern is compiled before it is searched"
    )
    assert len({one.reads_digits for one in second}) == 2


def test_changed_row_is_checked(start):
    start()
    path, content = FILES[0]
    row = {**content["signatures"][0], "pattern": "a*"}
    with pytest.raises(ValueError, match="a repeat without bound"):
        start([(path, {**content, "signatures": [row]})])
    with pytest.raises(ValueError, match="a repeat without bound"):
        start([(path, {**content, "signatures": [row]})])  # nor is the fault kept as sound


def test_other_code_takes_nothing_that_was_kept(start, monkeypatch):
    key = kept_signatures.key_of([content for _, content in FILES])
    kept_signatures.keep_digit_readers(key, ["one"])
    assert kept_signatures.kept_digit_readers(key) == {"one"}
    monkeypatch.setattr(kept_signatures, "code_digest", lambda *_names: b"other")
    assert (
        kept_signatures.kept_digit_readers(
            kept_signatures.key_of([content for _, content in FILES])
        )
        is None
    )


def test_code_that_is_in_no_files_keeps_nothing(start, monkeypatch):
    def fails(*_names):
        raise NotADirectoryError

    monkeypatch.setattr(kept_signatures, "code_digest", fails)
    assert kept_signatures.key_of([]) is None and kept_signatures.kept_digit_readers(None) is None
    assert len(start()) > 500 and json.dumps([one.id for one in start()])
