"""Prefixes and suffixes of log lines are removed, and the time, host and rank in them are kept."""

from __future__ import annotations

import json

import pytest
from job_diagnosis import diagnose

from unhang.jobs.diagnose.diagnosing import read_all
from unhang.jobs.diagnose.logs.wrappers import PLAIN, find_wrapping, message_of

LINES = [
    "# reporter: two GPUs hang, the job works with NCCL_P2P_DISABLE=1",
    "  Link 5: Inactive",
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)",
    "",
]
AROUND = {
    "a runtime's line": "2026-11-21T10:00:00.123456789Z stderr F ",
    "a time": "2026-11-21T10:00:00.123456789Z ",
    "syslog": "Nov 21 10:00:00 gpu-a train[4711]: ",
    "a journal with full times": "2026-11-21T10:00:00+00:00 gpu-a train[4711]: ",
    "a pod": "[pod/train-worker-0/pytorch] ",
    "a service": "trainer-1  | ",
    "a worker of Ray": "(RayTrainWorker pid=33107, ip=192.0.2.4) ",
    "a rank": "[rank3]: ",
    "torchrun": "[default3]:",
    "mpirun": "[1,3]<stderr>: ",
    "srun": "  3: ",
    "a quotation": "> ",
}


@pytest.mark.parametrize("before", AROUND.values(), ids=AROUND)
def test_prefix_of_every_line_is_taken_off(before):
    lines = [(before + line).encode() for line in LINES]
    wrapping = find_wrapping(lines)
    assert [wrapping.bare(line)[0].decode() for line in lines] == LINES


def test_layers_lie_in_each_other():
    lines = [
        f"2026-11-21T10:00:00Z [pod/worker-0/pytorch] [rank1]: {line}".encode() for line in LINES
    ]
    wrapping = find_wrapping(lines)
    assert [wrapping.bare(line)[0].decode() for line in lines] == LINES


@pytest.mark.parametrize(
    "lines",
    [
        [
            "gpu-a:81:90 [0] NCCL INFO Using network IB",
            "gpu-a:82:91 [1] NCCL INFO Using network IB",
        ],
        [
            "Jan 18 08:16:03 gpu-a kernel: NVRM: Xid (PCI:0000:42:00): 79",
            "Jan 18 08:16:04 gpu-a kernel: mce: Machine check",
        ],
        ["[rank0]: Traceback (most recent call last):", "step 1 loss 3.2", "step 2 loss 3.1"],
        ["{'loss': 2.1}", '{"loss": 2.1, "step": 7}'],
    ],
)
def test_what_a_program_prints_itself_stays(lines):
    assert find_wrapping([line.encode() for line in lines]) == PLAIN


def test_plain_log_is_wrapped_in_plain_itself_so_that_its_lines_are_read_once():
    assert find_wrapping([b"step 1 | loss 2.0", b"step 2 | loss 1.9"]) is PLAIN


def test_indentation_is_taken_off_only_where_all_lines_have_it():
    assert find_wrapping([b"    a", b"      b", b""]).bare(b"      b") == (b"      b", b"  b")
    assert find_wrapping([b"    a", b"b"]) == PLAIN


def test_message_of_a_line_of_json_stands_behind_its_time():
    row = {"log": "first\nsecond\n", "stream": "stderr", "time": "2026-11-21T10:00:00Z"}
    assert (
        message_of(json.dumps(row).encode())
        == b"2026-11-21T10:00:00Z first\n2026-11-21T10:00:00Z second"
    )
    assert message_of(b'{"message": "out of reach", "error": "EOF"}') == b"out of reach EOF"
    assert (
        message_of(b'{"loss": 2.1}') is None
        and message_of(b'{"log": ') is None
        and message_of(b"[" * 5000) is None
    )


WARN = (
    "gpu-a:811:902 [3] include/shm.h:48 NCCL WARN Error while creating shared memory segment"
    " nccl-shm-recv-5d (size 9637888)"
)


@pytest.mark.parametrize("columns", [80, 70])
def test_line_that_a_terminal_had_cut_is_whole_again(tmp_path, columns):
    whole = [WARN.replace("gpu-a", host) for host in ("gpu-a", "gpu-bcd", "gpu-efgh")]
    text = "\n".join(
        line[at : at + columns] for line in whole for at in range(0, len(line), columns)
    )
    (tmp_path / "job.log").write_text(text + "\n", encoding="utf-8")
    _inputs, scans, _flights = read_all([str(tmp_path / "job.log")])
    assert {event.text for event in scans[0].events} == set(whole)


def test_rows_of_one_length_are_not_taken_for_cut_lines():
    rows = [
        b"m%d:100:130 [0] NCCL INFO comm 0x55aa rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1b000"
        b" Init STAR" % rank
        for rank in range(4)
    ]
    assert find_wrapping(rows) == PLAIN


def test_rows_of_a_table_are_not_taken_for_cut_lines():
    head = f"{'NAME':<30}{'DESIRED':<10}{'CURRENT':<10}{'READY':<8}{'NODE SELECTOR':<40}AGE"
    rows = [
        f"{name:<30}{'0':<10}{'0':<10}{'0':<8}{'nvidia.com/gpu.deploy=true':<40}11m"
        for name in ("gpu-feature-discovery", "nvidia-driver-daemonset", "mig-manager")
    ]
    assert len({len(line) for line in (head, *rows)}) == 1
    assert find_wrapping([line.encode() for line in (head, *rows)]) == PLAIN
    head = "timestamp,rank,host,step,state,step_ms,loss,lr,tokens,grad_norm,reserved_byte_gb"
    assert len(head) == 80 and find_wrapping([head.encode(), b"t,0,a,1,x,2,3,4,5,6,7"]) == PLAIN


def test_rank_around_a_line_counts_where_the_line_names_none_and_times_where_no_line_has_one(
    tmp_path,
):
    job = tmp_path / "job.log"
    job.write_text(
        f"2026-11-21T10:00:00Z [rank3]: {WARN}\n2026-11-21T10:00:01Z [rank4]: {WARN}\n",
        encoding="utf-8",
    )
    events = read_all([str(job)])[1][0].events
    assert {event.prefix.rank for event in events} == {3, 4}
    assert {event.prefix.stamp for event in events} == {
        "2026-11-21T10:00:00Z",
        "2026-11-21T10:00:01Z",
    }


def test_clock_of_the_program_goes_before_the_clock_of_the_collector(tmp_path):
    job = tmp_path / "job.log"
    job.write_text(
        f"2026-11-21T10:00:09Z [2026-11-21 08:16:03] {WARN}\n2026-11-21T10:00:09Z {WARN}\n",
        encoding="utf-8",
    )
    assert [event.prefix.stamp for event in read_all([str(job)])[1][0].events[:1]] == [
        "2026-11-21 08:16:03"
    ]


def test_one_lightning_line_of_one_rank_is_no_alarm_and_those_of_several_ranks_are(tmp_path):
    job = tmp_path / "job.log"
    alone, more = "GLOBAL_RANK: 3, MEMBER: 4/8\n", "GLOBAL_RANK: 0, MEMBER: 1/8\n"
    for text, severities in ((alone, {"info"}), (alone + more, {"warning"})):
        job.write_text(text, encoding="utf-8")
        assert {
            cause["severity"]
            for cause in diagnose([str(job)])["causes"]
            if cause["cause"] == "launch_mismatch"
        } == severities
