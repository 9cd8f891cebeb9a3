"""No input exhausts the controller: dumps that allocate gigabytes, lists without end, a thousand
failed groups, devices, pipes, lines of one repeated word."""

from __future__ import annotations

import io
import os
import pickle
import time

import pytest
from job_diagnosis import diagnose

from unhang.core.limits import Limits
from unhang.core.together import NOT_READ
from unhang.jobs.diagnose.logs.flight_dumps import read_dumps
from unhang.jobs.diagnose.logs.reading import LONGEST_READ_S, Input, open_input, read_blocks
from unhang.jobs.diagnose.matching.signatures import load_signatures
from unhang.jobs.diagnose.meaning.evidence import added_up
from unhang.jobs.flight import Entry, Flight
from unhang.jobs.flight_steps import recording_of


def entry(seq, group="0", **more):
    return {
        "process_group": (group, "default"),
        "collective_seq_id": seq,
        "profiling_name": "nccl:all_reduce",
        "state": "started",
        "input_sizes": [[4]],
        **more,
    }


def test_more_than_a_thousand_groups_in_trouble_are_added_up():
    assert added_up([4.0] * 5000) == pytest.approx(8.0)
    flights = [
        Flight(
            f"rank{rank}",
            rank,
            tuple(
                Entry(str(group), "", 5 - rank, "all_reduce", "completed" if rank else "started")
                for group in range(1100)
            ),
            {},
            {},
        )
        for rank in (0, 1)
    ]
    assert len(recording_of(flights).answer.waits) == 1100


def test_dump_of_a_few_bytes_that_asks_for_gigabytes_is_refused():
    asks = b"\x80\x04\x8e" + (3 << 30).to_bytes(8, "little") + b"x."  # BINBYTES8 of 3 GiB
    with pytest.raises(ValueError, match=r"damaged|took more"):
        read_dumps(asks, "rank0", Limits(cpu_s=5, memory_bytes=256 << 20, wall_s=20))


def test_list_that_holds_itself_is_no_text():
    endless: list = []
    endless.append(endless)
    dump = pickle.dumps(
        {"entries": [entry(1, input_sizes=endless, profiling_name=endless), entry(2)]}
    )
    (read,) = read_dumps(dump, "rank3")
    assert (
        [one.seq for one in read.entries] == [1, 2]
        and read.entries[0].name == "?"
        and read.rank == 3
    )


def test_dump_that_names_code_runs_none(tmp_path):
    class Runs:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    with pytest.raises(ValueError, match="not plain data"):
        read_dumps(pickle.dumps({"entries": [Runs()]}), "rank0")
    assert not (tmp_path / "ran").exists()


def test_pipe_that_nobody_writes_to_ends_with_a_word(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    keeper = os.open(tmp_path / "pipe", os.O_RDWR)  # a writer that never writes
    stream = open_input(tmp_path / "pipe", patience_s=0.2)
    with pytest.raises(OSError, match="nothing came through the pipe"):
        stream.read(100)
    stream.close()
    os.close(keeper)


def test_device_without_end_is_named_and_not_read(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("RuntimeError: CUDA out of memory. Tried\n")
    answer = diagnose([str(log), "/dev/zero"])
    assert [one["kind"] for one in answer["inputs"]] == ["log", "unread"]


def test_a_gap_between_a_device_and_what_befell_it_ends_at_the_next_device():
    """Else each of a thousand names would be looked at from as far as the gap reaches, for each of
    the names before it."""
    signature = next(one for one in load_signatures() if one.id == "device-file-refused")
    assert signature.search("cat: /dev/nvidia0: Permission denied")
    assert not signature.search("/dev/nvidia0 /dev/sda: Permission denied")


def test_input_whose_time_is_over_is_read_no_further_and_says_so():
    """Of an endless stream, however slowly it comes; the clock is that of the input."""
    endless = io.BufferedReader(open("/dev/zero", "rb", buffering=0))  # noqa: SIM115 -- closed below
    about = Input("log", began_s=time.monotonic() - LONGEST_READ_S - 1)
    with endless:
        assert list(read_blocks(endless, about)) == []
    assert about.bytes == 0 and about.notes == [
        f"{NOT_READ}: only {LONGEST_READ_S} s of it; cut out the part that matters"
    ]
