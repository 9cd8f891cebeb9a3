"""`unhang diagnose` behind a pipe, and without anything to read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os

import pytest

from unhang.cli import main

LINE = (
    b"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the"
    b" bus.\n"
)


@pytest.fixture
def standard_input(monkeypatch):
    """Puts a file descriptor in the place of standard input."""

    def put(descriptor):
        monkeypatch.setattr("sys.stdin", os.fdopen(descriptor, "r"))

    return put


def test_a_pipe_is_read_without_being_named(standard_input, capsys):
    reader, writer = os.pipe()
    os.write(writer, LINE)
    os.close(writer)
    standard_input(reader)
    assert main(["diagnose", "-v"]) == 1
    assert "read (stdin): log, 1 line\n" in capsys.readouterr().out


def test_a_file_behind_standard_input_is_read(standard_input, tmp_path, capsys):
    (tmp_path / "job.log").write_bytes(LINE)
    standard_input(os.open(tmp_path / "job.log", os.O_RDONLY))
    assert main(["diagnose"]) == 1
    assert "A GPU, its memory or its slot fails: GPU or device at PCI" in capsys.readouterr().out


def test_without_a_pipe_a_log_is_asked_for(standard_input, capsys):
    standard_input(os.open("/dev/null", os.O_RDONLY))
    assert main(["diagnose"]) == 2
    assert "no logs, folders of logs or - are given" in capsys.readouterr().err


def test_a_folder_without_files_is_named(tmp_path, capsys):
    assert main(["diagnose", str(tmp_path)]) == 2
    assert f"there are no logs, and no other file, in {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_an_archive_on_a_pipe_is_unpacked(standard_input, capsys, pack):
    reader, writer = os.pipe()
    os.write(writer, pack(LINE))
    os.close(writer)
    standard_input(reader)
    assert main(["diagnose", "-v", "-"]) == 1
    assert "read (stdin): log, 1 line\n" in capsys.readouterr().out
