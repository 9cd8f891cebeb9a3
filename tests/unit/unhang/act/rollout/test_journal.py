"""The journal on disk: each entry is written before its step starts, an incomplete line is
reported, and only one controller writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.act.rollout.journal import (
    JOURNAL,
    JournalReader,
    Superseded,
    append,
    begin,
    read_journal,
)
from unhang.act.rollout.journal_text import (
    LONGEST_LINE_BYTES,
    JournalParser,
    JournalText,
    last_epoch,
    parse_journal,
    render_entry,
)
from unhang.act.rollout.node_state import meaning_of
from unhang.act.rollout.rollout_state import replay
from unhang.act.rollout.steps import (
    BEGUN,
    DONE,
    MEANINGS,
    POSTPONED,
    RELEASED,
    STATUSES,
    UNFINISHED,
    Entry,
)
from unhang.core.errors import UserError

AT = "2026-11-20T07:00:00Z"
FIRST, SECOND = (
    Entry(AT, "gpu001", "lock", BEGUN, 0, {"boot_id": None}),
    Entry(AT, "gpu001", "lock", DONE, 3, {"fencing": 3, "boot_id": "b1"}),
)
ENTRIES = st.builds(
    Entry,
    st.just(AT),
    st.text(max_size=8),
    st.sampled_from(["lock", "apply"]),
    st.sampled_from(STATUSES),
    st.integers(0, 9),
    st.dictionaries(st.text(), st.text()),
)


def last_line(content):
    return content[content.rstrip(b"\n").rfind(b"\n") + 1 :] or b"\n"


EARLIER = """\
{"at":"2026-11-20T07:00:00Z","host":"","step":"rollout","status":"begun","token":1,"evidence":{"by":"ops"}}
{"at":"2026-11-20T07:00:00Z","host":"a","step":"lock","status":"deferred","token":0,"evidence":{"why":"rack1"}}
{"at":"2026-11-20T07:00:00Z","host":"b","step":"lock","status":"begun","token":0,"evidence":{}}
{"at":"2026-11-20T07:00:00Z","host":"b","step":"lock","status":"failed","token":0,"evidence":{"why":"another run","holder":"x"}}
{"at":"2026-11-20T07:00:00Z","host":"c","step":"apply","status":"begun","token":0,"evidence":{}}
{"at":"2026-11-20T07:00:00Z","host":"c","step":"apply","status":"silent","token":0,"evidence":{"why":"unreachable"}}
{"at":"2026-11-20T07:00:00Z","host":"d","step":"apply","status":"begun","token":0,"evidence":{}}
{"at":"2026-11-20T07:00:00Z","host":"d","step":"release","status":"done","token":0,"evidence":{"drained":true,"owned":false,"drained_by_others":"alice"}}
"""


def test_a_journal_from_before_the_states_were_merged_is_read():
    """When they were deferred, refused, no answer and drained by others."""
    standing = replay(parse_journal(EARLIER.encode()).entries)
    states = {host: standing.node(host).state for host in "abcd"}
    assert states == dict(zip("abcd", (POSTPONED, POSTPONED, UNFINISHED, RELEASED), strict=True))
    assert meaning_of(standing.node("d")).endswith("it stays drained")
    assert set(MEANINGS) >= set(states.values()) and len(MEANINGS) == 8


def test_what_was_written_is_read(tmp_path):
    epoch = begin(tmp_path, AT, {"by": "ops@ctl"})
    append(tmp_path, epoch, FIRST)
    append(tmp_path, epoch, SECOND)
    assert read_journal(tmp_path).entries[1:] == (FIRST, SECOND)
    assert last_epoch(read_journal(tmp_path).entries) == epoch == 1


@pytest.mark.parametrize("kept", range(1, len(render_entry(SECOND)) - 1))
def test_a_line_that_broke_off_did_not_happen_is_reported_and_does_not_spoil_the_next(
    tmp_path, kept
):
    epoch = begin(tmp_path, AT, {})
    whole = (tmp_path / JOURNAL).read_bytes()
    with (tmp_path / JOURNAL).open("ab") as journal:
        journal.write(render_entry(SECOND)[:kept])
    torn = read_journal(tmp_path)
    assert len(torn.entries) == 1
    assert [number for number, _ in torn.torn] == [2]
    append(tmp_path, epoch, FIRST)
    after = read_journal(tmp_path)
    assert after.entries[-1] == FIRST
    assert after.torn == torn.torn
    assert (tmp_path / JOURNAL).read_bytes().startswith(whole)


@pytest.mark.slow
@given(st.lists(st.tuples(ENTRIES, st.integers(0, 400)), max_size=12))
def test_whatever_breaks_off_wherever_all_that_was_written_whole_is_read(steps):
    content, whole = b"", []
    for entry, lost in steps:
        new = render_entry(entry, last_line(content))
        content += new[: max(len(new) - lost, 0)]
        if lost <= 1:
            whole.append(entry)
    position = iter(parse_journal(content).entries)
    assert all(any(one == other for other in position) for one in map(as_read, whole))


@pytest.mark.slow
@given(
    st.lists(st.tuples(ENTRIES, st.integers(0, 400)), max_size=12),
    st.lists(st.integers(0, 3000), max_size=12),
)
def test_a_journal_that_is_followed_in_whatever_pieces_says_what_the_whole_says(steps, stops):
    content = b""
    for entry, lost in steps:
        new = render_entry(entry, last_line(content))
        content += new[: max(len(new) - lost, 0)]
    parser, entries = JournalParser(), []
    for stop in [*sorted(min(stop, len(content)) for stop in stops), len(content)]:
        entries += parser.feed(content[parser.taken_bytes : max(stop, parser.taken_bytes)])
    assert JournalText(
        tuple(entries), parser.broken_off(content[parser.taken_bytes :])
    ) == parse_journal(content)


def as_read(entry):
    return parse_journal(render_entry(entry)).entries[0]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"at": "x"}', "line 2 of the journal must have at, host, step, status, token, evidence"),
        (b"[]", "line 2 of the journal is not JSON"),
        (
            b'{"at":"2026-11-20T07:00:00Z","host":"a","step":"lock","status":"perhaps","token":0,"evidence":{}}',
            "line 2 of the journal must have",
        ),
        (
            b'{"at":"2026-11-20T07:00:00Z","host":"a","step":"lock","status":"done","token":true,"evidence":{}}',
            "line 2 of the journal must have",
        ),
        (
            b'{"at":"yesterday","host":"a","step":"lock","status":"done","token":1,"evidence":{}}',
            "line 2 of the journal must have",
        ),
        (
            b'{"at":"2026-11-20T07:00:00","host":"a","step":"lock","status":"done","token":1,"evidence":{}}',
            "line 2 of the journal must have",
        ),
        (
            b'{"at":"x","at":"y","host":"a","step":"lock","status":"done","token":1,"evidence":{}}',
            "occurs twice",
        ),
    ],
)
def test_a_journal_that_somebody_edited_is_refused_with_the_line(line, found):
    content = render_entry(FIRST) + line + b"\n" + render_entry(SECOND)
    with pytest.raises(UserError, match=found):
        parse_journal(content)


def test_a_controller_that_was_cut_off_writes_nothing_more(tmp_path):
    first = begin(tmp_path, AT, {})
    second = begin(tmp_path, AT, {})
    before = (tmp_path / JOURNAL).read_bytes()
    with pytest.raises(
        Superseded,
        match=(f"controller {second} is the newest of the rollout in {tmp_path}, not {first}"),
    ):
        append(tmp_path, first, FIRST)
    assert (tmp_path / JOURNAL).read_bytes() == before
    append(tmp_path, second, FIRST)


def test_the_numbers_of_controllers_go_up_without_the_lock_file_too(tmp_path):
    begin(tmp_path, AT, {})
    begin(tmp_path, AT, {})
    (tmp_path / "journal.lock").unlink()
    assert begin(tmp_path, AT, {}) == 3


def test_an_entry_that_is_too_long_is_refused_and_names_its_step(tmp_path):
    epoch = begin(tmp_path, AT, {})
    with pytest.raises(ValueError, match=f"more than {LONGEST_LINE_BYTES}"):
        append(
            tmp_path,
            epoch,
            Entry(AT, "gpu001", "audit", DONE, 1, {"why": "x" * LONGEST_LINE_BYTES}),
        )


def test_a_reader_gives_each_entry_once_and_waits_for_a_line_that_is_being_written(tmp_path):
    reader = JournalReader(tmp_path)
    assert reader.news() == []
    epoch = begin(tmp_path, AT, {})
    append(tmp_path, epoch, FIRST)
    assert [entry.step for entry in reader.news()] == ["rollout", "lock"]
    assert reader.news() == []
    line = render_entry(SECOND)
    for part, news in (
        (line[:40], []),
        (line[40:-1], [SECOND]),
        (line[-1:] + line[:9], []),
        (line[9:], [SECOND]),
    ):
        with (tmp_path / JOURNAL).open("ab") as journal:
            journal.write(part)
        assert reader.news() == news
    assert reader.read_bytes == (tmp_path / JOURNAL).stat().st_size


@pytest.mark.parametrize("after", [b"", render_entry(SECOND), render_entry(SECOND) * 9])
def test_a_journal_that_was_replaced_under_its_reader_is_refused_again_and_again(tmp_path, after):
    reader = JournalReader(tmp_path)
    append(tmp_path, begin(tmp_path, AT, {}), FIRST)
    assert reader.news() != []
    (tmp_path / JOURNAL).unlink()
    if after:
        (tmp_path / JOURNAL).write_bytes(after)
    for _ in range(2):
        with pytest.raises(
            UserError,
            match=r"journal.jsonl has changed since",
        ):
            reader.news()


def test_a_line_that_is_no_entry_is_refused_by_a_reader_each_time_it_looks(tmp_path):
    reader = JournalReader(tmp_path)
    append(tmp_path, begin(tmp_path, AT, {}), FIRST)
    reader.news()
    with (tmp_path / JOURNAL).open("ab") as journal:
        journal.write(render_entry(SECOND) + b'{"at":"x"}\n')
    for _ in range(2):
        with pytest.raises(
            UserError,
            match="line 4 of the journal must have at, host, step, status, token, evidence",
        ):
            reader.news()


WRITER = """
import sys
from pathlib import Path
from unhang.act.rollout.journal import append, begin
from unhang.act.rollout.steps import Entry
run = Path(sys.argv[1])
epoch = begin(run, "2026-11-20T07:00:00Z", {})
for number in range(10_000):
    append(run, epoch, Entry("2026-11-20T07:00:00Z", "gpu001", "apply", "begun", number, {"why": "x" * 3000}))
    print(number, flush=True)
"""


def test_what_was_said_to_be_written_is_there_after_a_kill(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=environment
    ) as writer:
        reported = [int(writer.stdout.readline()) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        reported += [int(line) for line in writer.stdout.read().split()]
    written = [entry.token for entry in read_journal(tmp_path).entries if entry.host]
    assert written[: len(reported)] == reported
    assert begin(tmp_path, AT, {}) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_full_disk_stops_the_controller_and_the_next_one_goes_on(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "none", str(tmp_path)], check=True)
    try:
        epoch = begin(tmp_path, AT, {})
        (tmp_path / "others").write_bytes(bytes(30_000))
        with pytest.raises(OSError, match="No space left"):
            while True:
                append(tmp_path, epoch, FIRST)
        (tmp_path / "others").unlink()
        assert begin(tmp_path, AT, {}) == 2
        assert FIRST in read_journal(tmp_path).entries
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
