"""Dumps of torch's flight recorder: plain data is read, code is never run, and a file that is not
the rank's own is left alone."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unhang_node.base.context import Context
from unhang_node.base.parse.plain_pickle import NotPlain
from unhang_node.base.root import Root
from unhang_node.job.flights import NEWEST, dump_paths, parse_dump, read_flights

HERE = Path(__file__).resolve()
# says that a terabyte of bytes follows
BOMB = b"\x80\x04" + b"\x8e" + (1 << 40).to_bytes(8, "little") + b"."
# remembers None at place 2147483647, for which the unpickler makes a table
MEMO = b"\x80\x04Nr\xff\xff\xff\x7f."


class Runs:
    def __reduce__(self):
        return os.system, ("touch owned",)


def entry(seq: int, group: str = "0", **more: object) -> dict:
    return {
        "collective_seq_id": seq,
        "process_group": (group, "default_pg"),
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
        **more,
    }


def dump(*entries: object) -> bytes:
    return pickle.dumps({"version": "2.10", "entries": list(entries)})


def test_the_newest_entries_of_each_group_are_kept_in_their_order():
    message = entry(0, profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=8)
    done = [entry(seq, state="completed") for seq in range(100)]
    found = parse_dump(dump(*done, entry(7, "1"), message))["entries"]
    assert [one["collective_seq_id"] for one in found] == [*range(100 - NEWEST, 100), 7, 0]
    assert found[-2]["process_group"] == ["1", "default_pg"]
    assert (found[-1]["is_p2p"], found[-1]["p2p_seq_id"]) == (True, 8)


def test_the_oldest_entry_that_is_open_is_kept():
    found = parse_dump(dump(*(entry(seq) for seq in range(100))))["entries"]
    assert found[0]["collective_seq_id"] == 0 and len(found) == 2 * NEWEST


def test_members_and_state_of_the_groups_are_read():
    config = {"3": {"desc": "tp", "ranks": "[0, 4]"}, "4": {"desc": "dp", "ranks": [0, 1, "x"]}}
    config |= {"5": {"desc": "all", "ranks": str(list(range(100_000)))}, "6": 7}
    status = {2: {"last_enqueued_collective": 9, "last_completed_collective": 8}, 3: {}, 4: None}
    content = {"entries": [], "pg_config": config, "pg_status": status}
    found = parse_dump(pickle.dumps(content))
    assert found["pg_config"] == {
        "3": {"desc": "tp", "ranks": "[0, 4]"},
        "4": {"desc": "dp", "ranks": "[0, 1]"},
        "5": {"desc": "all", "ranks": ""},
    }
    assert found["pg_status"] == {"2": status[2]}


def test_no_code_of_a_dump_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotPlain, match=r"posix\.system"):
        parse_dump(pickle.dumps(Runs()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x80", pickle.dumps([1]), pickle.dumps({"entries": 3}), b"P1\n."]
)
def test_what_is_no_dump_is_refused(content):
    with pytest.raises(Exception, match=r".") as problem:
        parse_dump(content)
    assert not isinstance(problem.value, (MemoryError, RecursionError))


@pytest.mark.parametrize(
    "odd",
    [
        3,
        None,
        {"collective_seq_id": "7"},
        {"collective_seq_id": 1 << 70},
        {"collective_seq_id": True, "process_group": 3},
    ],
)
def test_odd_entries_are_left_out_or_plain(odd):
    assert all(
        isinstance(one["collective_seq_id"], int)
        for one in parse_dump(dump(odd, entry(1)))["entries"]
    )
    assert parse_dump(dump(entry(2, input_sizes=[["x", 1, 1 << 80], 5]), odd))["entries"][0][
        "input_sizes"
    ] in ([[1]], [])


@pytest.mark.parametrize("content", [BOMB, MEMO])
def test_a_dump_that_wants_all_memory_gets_little(content, tmp_path):
    (tmp_path / "dump").write_bytes(content)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from unhang_node.job import flights;"
        " flights._limit_memory()\n"
    )
    code += "import resource; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    code += (
        "try:\n    flights.parse_dump(open(sys.argv[2], 'rb').read())\nexcept Exception as"
        " problem:\n    print(type(problem).__name__)\n"
    )
    code += "assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20\n"
    modules = str(HERE.parents[4] / "module_utils")
    done = subprocess.run(
        [sys.executable, "-c", code, modules, str(tmp_path / "dump")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("MemoryError", "EOFError", "UnpicklingError", "OverflowError")


def read_here(folder: Path, **changes: object) -> tuple[list, list]:
    """(flights, unread) of this process as a rank whose dumps are in a folder."""
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    row = {
        "rank": 3,
        "pid": os.getpid(),
        "started": int(stat[19]),
        "user": None,
        "framework": "torch",
        "container": None,
    }
    row |= {"settings": {"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/fr_"}, **changes}
    reader, writer = os.pipe()
    child = os.fork()  # the limit on memory is for a process of its own
    if child == 0:
        pieces = list(read_flights(Context(Root(), {"ranks": [row]}, (), None)))
        os.write(
            writer,
            pickle.dumps(
                (
                    [one for piece in pieces for one in piece[1]["flights"]],
                    [one for piece in pieces for one in piece[2]],
                )
            ),
        )
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        found = pickle.loads(answer.read())
    os.waitpid(child, 0)
    return found


def test_the_dump_of_a_rank_is_read(tmp_path):
    (tmp_path / "fr_3").write_bytes(dump(entry(5)))
    [found], unread = read_here(tmp_path)
    assert (found["rank"], found["path"], unread) == (3, f"{tmp_path}/fr_3", [])
    assert found["entries"][0]["collective_seq_id"] == 5


def test_a_dump_of_an_earlier_run_is_not_read(tmp_path):
    (tmp_path / "fr_3").write_bytes(dump(entry(5)))
    os.utime(tmp_path / "fr_3", (time.time() - 1e6,) * 2)
    found, [row] = read_here(tmp_path)
    assert found == [] and "by an earlier run" in row["reason"]


def test_links_pipes_and_files_of_others_are_not_read(tmp_path):
    (tmp_path / "secret").write_bytes(dump(entry(5)))
    (tmp_path / "fr_3").symlink_to(tmp_path / "secret")
    assert read_here(tmp_path)[0] == []
    (tmp_path / "fr_3").unlink()
    os.mkfifo(tmp_path / "fr_3")
    assert read_here(tmp_path)[0] == []
    (tmp_path / "fr_3").unlink()
    if os.geteuid() == 0:
        (tmp_path / "fr_3").write_bytes(dump(entry(5)))
        os.chown(tmp_path / "fr_3", 12345, -1)
        found, [row] = read_here(tmp_path)
        assert found == [] and "belongs to uid 12345" in row["reason"]


def test_ranks_without_torch_are_passed_over(tmp_path):
    (tmp_path / "fr_3").write_bytes(dump(entry(5)))
    assert read_here(tmp_path, framework="jax") == ([], [])


def test_the_places_are_those_of_torch():
    row = {"rank": 2, "settings": {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/a/b_"}}
    assert dump_paths(row, "/home/u") == ["/a/b_2"]
    assert dump_paths({**row, "settings": {}}, "/home/u") == [
        "/home/u/.cache/torch/comm_lib_trace_rank_2",
        "/tmp/nccl_trace_rank_2",
    ]
    assert dump_paths({**row, "settings": {"TORCH_FR_DUMP_TEMP_FILE": "relative_"}}, None) == []
