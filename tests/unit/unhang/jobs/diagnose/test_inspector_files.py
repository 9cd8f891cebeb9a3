"""Records of NCCL's Inspector, and traces of torch's profiler beside logs and dumps."""

from __future__ import annotations

import gzip
import io
import json

import pytest
from flight_dumps import as_json, dumps_of, job_of, place_of, play
from read_again import fits

from unhang.jobs.diagnose.diagnosing import diagnose
from unhang.jobs.diagnose.log_facts import gather_facts
from unhang.jobs.diagnose.logs.inspector_files import MOST_MEMBERS, in_words, members_of
from unhang.jobs.diagnose.logs.reading import Input, read_blocks
from unhang.jobs.diagnose.matching.scanning import Sieve, scan_blocks

COMM, SMALL = "0x7a11c0de", "0x51de"
STARTS = "".join(
    f"node-a:{500 + rank}:{700 + rank} [{rank}] NCCL INFO ncclCommInitRankConfig comm 0x5{rank}0"
    f" rank {rank} nranks 8 cudaDev {rank} nvmlDev {rank} busId {rank}b000 commId 0x9f1 - Init"
    " START\n"
    for rank in range(8)
)
LATE = (
    "[rank{rank}]:[E1104 23:14:00.690 ProcessGroupNCCL.cpp:632] [Rank {number}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=40, NumelOut=40,"
    " Timeout(ms)=600000) ran for 600058 milliseconds before timing out.\n"
    "[rank{rank}]:[E1104 23:14:00.698 ProcessGroupNCCL.cpp:2268] [PG ID 4 PG GUID 31 Rank {number}]"
    "  failure detected by watchdog at work sequence id: 12 PG status: last enqueued work: 12, last"
    " completed work: 11\n"
)
LOG = STARTS + LATE.format(rank=0, number=0) + LATE.format(rank=5, number=2)


def header(rank, size, comm=COMM, process=None):
    process = rank if process is None else process
    return {
        "header": {"id": comm, "rank": rank, "n_ranks": size, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "hostname": "n1",
                     "pid": 100 + process, "dump_timestamp_us": 1_748_030_377_000_000},
    }  # fmt: skip


def ended(op, seq):
    return {"coll_perf": {"coll": op, "coll_algo": "Ring", "coll_sn": seq, "coll_exec_time_us": 9}}


def inspected(newest, op="AllReduce", size=4, comm=COMM, processes=None):
    """{rank: number} -> the lines of all."""
    return "".join(
        json.dumps(header(rank, size, comm, (processes or {}).get(rank)) | ended(op, seq)) + "\n"
        for rank, last in newest.items()
        for seq in range(last - 2, last + 1)
    )


def traced(groups, rank=0, events='{"ph": "X", "name": "Watchdog caught collective"}'):
    """As torch 2.9 writes it. groups: {(name, description): ranks}."""
    config = [
        {"pg_name": name, "pg_desc": said, "backend_config": "cuda:nccl", "pg_size": len(ranks),
         "ranks": list(ranks)}
        for (name, said), ranks in groups.items()
    ]  # fmt: skip
    about = {"backend": "nccl", "rank": rank, "world_size": 8, "pg_count": 2, "pg_config": config}
    return (
        '\n {\n    "schemaVersion": 1,\n    "deviceProperties": [],\n'
        f'      "distributedInfo": {json.dumps(about)},\n    "traceEvents": [\n{events}\n]}}\n'
    )


@pytest.fixture
def answer(tmp_path):
    def answer(**files):
        for name, text in files.items():
            path = tmp_path / name
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        found = diagnose([str(tmp_path)])
        fits(found, "diagnosis-1")
        return found

    return answer


def roots(found):
    return found["waited_for"] and found["waited_for"]["roots"]["ranks"]


def records_of(data):
    blocks = read_blocks(io.BytesIO(data), Input("f"))
    return scan_blocks(blocks, "f", Sieve([])).records


def test_inspector_alone_says_what_ended_and_accuses_nobody(answer):
    found = answer(a=inspected({0: 97, 1: 97}), b=inspected({2: 96, 3: 97}))
    assert found["outcome"]["word"] == "no_end"
    assert found["outcome"]["why"] == (
        f"NCCL Inspector records completed operations: the last of communicator {COMM} is"
        " ALLREDUCE #97 on 3 of 4 ranks; who did not enter the next is not in it"
    )
    assert (found["waited_for"], found["causes"]) == (None, [])
    assert found["next"]["command"] == "unhang inspect"
    assert "flight recorder" in found["collect_next"][0] and "RAS" in found["collect_next"][0]


def test_records_of_a_version_whose_header_is_on_a_line_before_are_read():
    marker = json.dumps(header(1, 2) | {"dump_stats": {"coll_records": 1}})
    text = f"{marker}\n{json.dumps(ended('ReduceScatter', 7))}\n"
    assert "REDUCESCATTER #7 on 1 of 2 ranks" in in_words(records_of(text.encode()))


def test_messages_are_not_the_last_operation_of_a_communicator_with_collectives():
    sent = header(0, 2) | {"p2p_perf": {"p2p": "Send", "p2p_sn": 300, "p2p_peer": 1}}
    text = inspected({0: 5, 1: 5}, size=2) + json.dumps(sent) + "\n"
    assert "ALLREDUCE #5 on 2 of 2 ranks" in in_words(records_of(text.encode()))


@pytest.mark.parametrize(
    ("op", "beside", "is_named"),
    [
        ("Broadcast", {}, True),
        ("AllReduce", {}, False),
        ("Broadcast", {0: 9, 1: 9, 2: 8, 3: 9}, False),  # its file is of an earlier moment
        ("Broadcast", {0: 9, 1: 9, 2: 9, 3: 9}, True),
    ],
)
def test_one_rank_that_others_can_leave_alone_is_possible(answer, op, beside, is_named):
    behind = inspected({0: 41, 1: 41, 2: 40, 3: 41}, op)
    found = answer(a=behind + inspected(beside, "AllGather"))
    assert (f"possible: rank 2 of communicator {COMM}" in found["outcome"]["why"]) == is_named
    assert found["waited_for"] is None


def test_a_log_that_ended_is_not_overruled_by_inspector(answer):
    done = "# Avg bus bandwidth    : 380.5\n# Out of bounds values : 0 OK\n"
    found = answer(a=inspected({0: 97, 1: 97}), b=done)
    assert found["outcome"]["word"] == "healthy"


def test_members_that_a_log_lacks_come_from_a_profilers_trace(answer):
    before = answer(log=LOG)
    assert roots(before) != "3"
    found = answer(log=LOG, trace=traced({("31", "experts"): (0, 3, 5)}))
    assert roots(found) == "3"
    assert found["waited_for"]["waits"][0]["group"] == "group 31"


def test_members_of_a_trace_that_do_not_fit_the_log_are_not_taken(answer):
    before = roots(answer(log=LOG))
    assert roots(answer(log=LOG, trace=traced({("31", "experts"): (0, 5, 6)}))) == before


def test_members_that_a_log_lacks_come_from_inspector(answer):
    world = inspected(dict.fromkeys(range(8), 30), size=8)
    part = inspected({0: 11, 1: 11, 2: 11}, size=3, comm=SMALL, processes={0: 0, 1: 3, 2: 5})
    assert roots(answer(log=LOG, records=world + part)) == "3"


def test_inspector_whose_largest_communicator_is_not_the_job_gives_no_members():
    part = inspected({0: 11, 1: 11, 2: 11}, size=3, processes={0: 0, 1: 3, 2: 5})
    records = records_of(part.encode())
    assert (members_of(records, 8), members_of(records, 3)) == (set(), {(0, 1, 2)})


@pytest.mark.slow
def test_members_that_dumps_lack_come_from_a_trace(answer):
    job = job_of(2, 2, 2)
    job.stops[3] = place_of(job, 3, "_reduce_scatter_base")
    dumps = dumps_of(job, play(job))
    names = {str(number): ranks for number, ranks in enumerate(job.groups.values())}
    kept = {f"nccl_trace_rank_{rank}": as_json({**dump, "pg_config": {}})
            for rank, dump in dumps.items() if rank != 3}  # fmt: skip
    before = answer(**kept)
    assert not before["waited_for"] or before["waited_for"]["certainty"] == "possible"
    trace = traced({(name, ""): ranks for name, ranks in names.items()})
    found = answer(**kept, trace=trace)
    assert (roots(found), found["waited_for"]["certainty"]) == ("3", "likely")


def test_events_of_a_trace_are_no_lines_of_a_log(answer):
    event = LATE.format(rank=1, number=1)
    found = answer(
        **{"t.json.gz": gzip.compress(traced({("0", ""): (0, 1)}, events=event).encode())}
    )
    assert found["waited_for"] is None and found["facts"]["collectives"] == []
    assert "its events are not" in found["inputs"][0]["notes"][0]


def test_groups_of_a_trace_longer_than_what_is_sniffed_are_read():
    many = {(str(one), "mesh_tp"): range(one * 512, one * 512 + 512) for one in range(64)}
    assert len(members_of(records_of(traced(many).encode()), None)) == 64


@pytest.mark.parametrize(
    "line",
    [
        '{"header": {"id": 5, "rank": 0, "n_ranks": 2}, "coll_perf": {"coll": "A", "coll_sn": 1}}',
        '{"header": {"id": "0x1", "rank": 9, "n_ranks": 2}, "coll_perf": {"coll": "A", "coll_sn": 1}}',
        '{"header": {"id": "0x1", "rank": -1, "n_ranks": 2}, "coll_perf": {"coll": "A", "coll_sn": 1}}',
        '{"header": {"id": "0x1", "rank": 0, "n_ranks": 9999999}, "coll_perf": {"coll": "A", "coll_sn": 1}}',
        '{"header": {"id": "0x1", "rank": "0", "n_ranks": 2}, "coll_perf": {"coll": [], "coll_sn": {}}}',
        '{"coll_perf": {"coll": "AllReduce", "coll_sn": 1}}',
        '{"header": [], "coll_perf": {"coll": "AllReduce", "coll_sn": 1e999}}',
        '{"distributedInfo": {"pg_config": [{"pg_name": 1, "ranks": [0]}]}}',
        '{"distributedInfo": {"pg_config": [{"pg_name": "1", "ranks": [0, 0]}]}}',
        '{"distributedInfo": {"pg_config": [{"pg_name": "1", "ranks": [0,,]}]}}',
        '{"distributedInfo": {"pg_config": [{"pg_name": "1", "ranks": [0], "ranks": 7}]}}',
        '{"distributedInfo": {"pg_config": [{"pg_name": "1", "ranks": [' + "9" * 6000 + "]}]}}",
        '{"schemaVersion": 1, "distributedInfo": {"pg_config": [{"ranks": [',
    ],
)
def test_what_is_no_record_is_left_out(line):
    data = f"{line}\n".encode()
    records = records_of(data)
    assert (records.ended, records.groups) == ({}, set())
    gather_facts([scan_blocks(read_blocks(io.BytesIO(data), Input("f")), "f", Sieve([]))])


def test_odd_fields_beside_a_record_do_no_harm():
    odd = header(0, 2) | ended("AllReduce", 1)
    odd["metadata"] = {"hostname": ["\0"], "pid": "x", "dump_timestamp_us": "1e9"}
    odd["header"]["n_ranks"] = MOST_MEMBERS
    records = records_of(json.dumps(odd).encode())
    assert members_of(records, None) == set() and in_words(records) == ""
