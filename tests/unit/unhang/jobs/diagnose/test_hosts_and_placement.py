"""Rules over several hosts or processes: networks that hosts do not share, plugins of some hosts
only, one GPU for all, a GPU for each task."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose

from unhang.jobs.diagnose.logs.rank_hosts import host_of_file

APP = "{pid}, 00000000:{bus}:00.0, 411 MiB\n"


def _reasons(tmp_path, text):
    """(cause, why) of all evidence that the diagnosis lists."""
    log = tmp_path / "job.log"
    log.write_text(text, encoding="utf-8")
    return {
        (cause["cause"], line["says"].split(",")[0])
        for cause in diagnose([str(log)])["causes"]
        for line in cause["evidence"]
    }


def test_processes_that_hold_one_gpu_in_a_job_that_runs_are_no_evidence(tmp_path):
    assert (
        _reasons(tmp_path, APP.format(pid=5120, bus="3B") + APP.format(pid=5121, bus="3B")) == set()
    )


DONE = (
    "n1:{pid}:90 [{gpu}] NCCL INFO comm 0x7f1a rank {rank} nranks 2 cudaDev {gpu} busId 20000{gpu}"
    " - Init COMPLETE\n"
)


def test_process_of_several_gpus_changes_none(tmp_path):
    text = (
        "".join(DONE.format(pid=70, gpu=gpu, rank=gpu) for gpu in range(2))
        + "n1:70:95 [1] NCCL INFO threadThresholds 8/8/64 | 24/8/64 | 8/8/64\n"
    )
    assert not any(why.startswith("process 70 used") for _, why in _reasons(tmp_path, text))


@pytest.mark.parametrize(("second", "shown"), [("1", True), ("2", False), ("0-63", False)])
def test_workers_that_print_one_and_the_same_core_share_it(tmp_path, second, shown):
    text = f"core affinity for PID 884147: 1\ncore affinity for PID 884145: {second}\n"
    assert (
        ("cpu_affinity", "several processes are bound to one and the same CPU")
        in _reasons(tmp_path, text)
    ) == shown


RETRY = (
    "{}:71:90 [1] transport/net_ib.cc:88 NCCL WARN NET/IB: Got completion from peer"
    " 192.0.2.{}<4791> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0 len=0 vendor err 129 hca mlx5_1\n"
)
CABLE = (
    "[ 812.1] mlx5_core 0000:18:00.0: Port module event[error]: module 1, Cable error, Bus stuck"
    " (I2C or data shorted)\n"
)


@pytest.mark.parametrize("path", ["run001/job.log", "gpu128/job.log", "gpu017/ranks.log"])
def test_folder_of_a_run_of_a_size_or_of_several_ranks_is_no_host(path):
    assert host_of_file(path, (), b"[rank3]: x" + b"[rank4]: y" * ("ranks" in path)) is None


@pytest.mark.parametrize("sick", ["cn07", "cn08"])
def test_host_of_the_kernels_line_is_meant_and_not_the_one_that_misses_it(tmp_path, sick):
    other = {"cn07": "cn08", "cn08": "cn07"}[sick]
    (tmp_path / "job.out").write_text(
        RETRY.format(other, 7) * 2 + f"{sick}:72:91 [1] NCCL INFO x\n"
    )
    for host in ("cn07", "cn08"):
        (tmp_path / f"{host}-dmesg.txt").write_text(f"[ 3.1] ok\n{CABLE * (host == sick)}")
    # another host is known only by its lines
    (tmp_path / "more.out").write_text(RETRY.format(sick, 8))
    found = diagnose([str(tmp_path)])
    hosts = [who for who in found["causes"][0]["where"] if who.startswith("host ")]
    assert hosts == [f"host {sick}"] and found["next"]["host"] == sick


def test_host_on_which_all_failing_lines_were_written_is_that_of_the_file(tmp_path):
    line = "[rank{0}]:[W1 06:30:08.5 socket.cpp:767] [c10d] The IPv6 network addresses of (cn1.site, 29511)"
    failed = f"{line} cannot be retrieved (gai error: -3 - Temporary failure in name resolution).\n"
    for number, text in ((1, ""), (2, failed.format(8) + failed.format(9)), (3, "")):
        log = f"Starting on cn{number} (node rank {number})\n{text}"
        (tmp_path / f"cn{number}.log").write_text(log)
    cause = diagnose([str(tmp_path)])["causes"][0]
    assert cause["title"] == "The master's name does not resolve"
    assert cause["where"][0] == "host cn2" and "host cn1" not in cause["where"]
    (tmp_path / "cn2.log").rename(tmp_path / "exp2.log")  # a name that the file does not say
    assert not any("exp2" in one for one in diagnose([str(tmp_path)])["causes"][0]["where"])
