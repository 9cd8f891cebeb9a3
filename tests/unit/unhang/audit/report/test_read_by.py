"""A run keeps how its nodes were read; what was read again is said as it was read last, and a
damaged file says nothing."""

from __future__ import annotations

import json

import pytest

from unhang.audit.report.read_by import FILE, ReadBy, read_by_line, read_by_of, write_read_by


def test_what_is_read_again_is_said_as_it_was_read_last(tmp_path):
    write_read_by(
        tmp_path,
        [
            ReadBy("by srun in job 7 as alice", ("gpu001", "gpu002")),
            ReadBy("not read: Slurm has it down", ("gpu003",)),
        ],
    )
    write_read_by(tmp_path, [ReadBy("by ssh", ("gpu003",))])
    assert (
        read_by_line(read_by_of(tmp_path), 80)
        == "gpu[001-002] by srun in job 7 as alice; gpu003 by ssh"
    )
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "ways",
    [
        None,
        {},
        [1],
        [{"how": 1, "hosts": []}],
        [{"how": "x", "hosts": "gpu001"}],
        [{"how": "x", "hosts": [1]}],
    ],
)
def test_a_file_of_another_form_says_nothing(tmp_path, ways):
    assert read_by_of(tmp_path) == []
    (tmp_path / FILE).write_text(json.dumps({"schema": "unhang/read-by/1", "ways": ways}))
    assert read_by_of(tmp_path) == []
    (tmp_path / FILE).write_text('{"schema": "unhang/read-by/1", "ways"')
    assert read_by_of(tmp_path) == []


def test_text_of_others_is_shown_and_not_obeyed():
    assert read_by_line(
        [ReadBy("by ssh: Slurm has it \x1b[31mdown\n", ("gpu001",))], 80
    ).isprintable()
