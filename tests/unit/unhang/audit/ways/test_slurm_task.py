"""What srun starts on a node runs the collector that was brought, and nothing else; its answer is
packed, and unpacked with a limit."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zlib

import pytest

from unhang.audit.ways.slurm_task import END, STDIN, WANTED, task_words, unpack_answer
from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS
from unhang.core.strict_json import NotStrict

COLLECTOR = b"import sys; print('collected', sys.argv[1:], sys.flags.isolated, 'x' * 3000)"
DIGEST = hashlib.sha256(COLLECTOR).hexdigest()


def start(place, data=b"", folder=None):
    """(what the task answered, its code, the finished process)."""
    argv = task_words(sys.executable, (), DIGEST, str(place), ["--silence-s=2"])
    done = subprocess.run(
        argv,
        input=data,
        capture_output=True,
        timeout=60,
        check=False,
        env={"TMPDIR": str(folder or "/tmp")},
    )
    lines = [line[1:] for line in done.stdout.decode().splitlines() if line.startswith("~")]
    ended = END.fullmatch(lines[-1]) if lines else None
    return (
        (unpack_answer(lines[:-1], int(ended[2])), int(ended[1]), done)
        if ended
        else (None, None, done)
    )


@pytest.mark.parametrize("by_file", [True, False])
def test_the_collector_runs_once_and_nothing_of_it_stays(tmp_path, by_file):
    brought = tmp_path / "collect.pyz"
    brought.write_bytes(COLLECTOR)
    text, code, done = (
        start(brought, folder=tmp_path) if by_file else start(STDIN, COLLECTOR, tmp_path)
    )
    assert (text.split(" ", 3)[:3], code) == (["collected", "['--silence-s=2']", "1"], 0), (
        done.stderr
    )
    assert max(map(len, done.stdout.splitlines())) < 1000
    assert [path.name for path in tmp_path.iterdir()] == ([] if by_file else ["collect.pyz"])


def test_another_file_none_or_a_link_is_not_started_and_the_collector_is_asked_for(tmp_path):
    changed, linked, link = (tmp_path / name for name in ("changed", "linked", "link"))
    changed.write_bytes(COLLECTOR + b"; print('planted')")
    linked.write_bytes(COLLECTOR)
    link.symlink_to(linked)
    os.mkfifo(tmp_path / "pipe")
    for place in (changed, link, tmp_path / "pipe", tmp_path / "none"):
        assert start(place)[:2] == ("", WANTED)
    text, _, done = start(STDIN, COLLECTOR + b"#")
    assert text is None
    assert b"found other bytes; it was not started" in done.stderr


def packed(out):
    return base64.b64encode(zlib.compress(out)).decode()


def test_an_answer_that_unpacks_to_more_than_one_may_have_is_cut():
    text = packed(b" " * (1 << 26))
    assert len(unpack_answer([text], len(text))) == ANSWER_LIMIT_CHARS + 1


@pytest.mark.parametrize("text", ["", "AAAA", "é", "=" * 8, packed(b"{}")[:-4], packed(b"{}")[:8]])
def test_half_an_answer_and_what_is_none_is_refused(text):
    with pytest.raises(NotStrict):
        unpack_answer([text], len(text))
    with pytest.raises(NotStrict):
        unpack_answer([text], len(packed(b"{}")) + 4)
