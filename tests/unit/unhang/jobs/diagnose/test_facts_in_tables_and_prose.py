"""Facts that stand in tables or prose decide: a speed that falls, stacks below the names of ranks, the work that each rank queued, a proxy, no firewall."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

LATE = (
    "[rank{rank}]:[E908 14:02:10.1 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=1800000) ran for 1800031 milliseconds before timing out.\n"
)
STATE = (
    "[rank{rank}]:[E908 14:02:10.2 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: "
    "812 PG status: last enqueued work: {queued}, last completed work: 811\n"
)
UNBATCHED = (
    "[rank3]:[W ProcessGroupNCCL.cpp:4110] Warning: An unbatched P2P op (send/recv) was called on this ProcessGroup with size 4. In lazy initialization mode, "
    "this will result in a new 2-rank NCCL communicator to be created.\n"
)
STACK = "rank {rank}:\n    wait (threading.py:355)\n    all_gather (torch/distributed/distributed_c10d.py:1815)\n    {call}\n"
SPEED = "Epoch[{epoch}] Batch [20]   Speed: {speed} samples/sec\n"


def loud(text):
    return [(cause["cause"], cause["certainty"]) for cause in diagnose_text(text)["causes"] if cause["severity"] != "info"]


def asked(text, *words):
    return [any(word in one for one in diagnose_text(text)["collect_next"]) for word in words]


@pytest.mark.parametrize(
    "told",
    [
        "The examples per second fall slowly and never come back.\n",
        "".join(SPEED.format(epoch=n, speed=speed) for n, speed in enumerate((2015.4, 1710.1, 921.6, 640.7))),
    ],
)
def test_speed_that_falls_is_no_hang_and_is_asked_for_clocks_and_temperature(told):
    found = diagnose_text(f"ResNet on one GPU.\n{told}")
    assert "slow" in found["outcome"]["why"] and asked(told, "clocks.sm,temperature.gpu", "py-spy") == [True, False]
    steady = "".join(SPEED.format(epoch=n, speed=speed) for n, speed in enumerate((2015.4, 1990.1, 2021.6, 2003.7)))
    assert asked(steady, "clocks.sm,temperature.gpu") == [False]
    assert asked(f"{told}And then it hangs in the next step.\n", "py-spy") == [True]


def test_slow_machine_beside_a_fast_one_is_compared_with_it():
    report = "The same job on another machine is fast, here it takes 1.6 times as long.\n"
    assert asked(report, "on the slow machine and on a fast one", "py-spy") == [True, False]


def test_pause_between_epochs_is_looked_at_while_it_lasts():
    report = "Between two epochs there are 17 seconds in which no GPU works.\n"
    assert asked(report, "twice within the pause", "environ") == [True, False]
    assert asked("It hangs between two epochs.\n", "twice within the pause") == [False]


@pytest.mark.parametrize("told", ["With one GPU an epoch needs a day, with two five days.\n", "Each epoch loses about three minutes.\n"])
def test_time_that_epochs_need_tells_of_a_slow_job(told):
    assert "slow" in diagnose_text(f"8 GPUs of one server.\n{told}")["outcome"]["why"]
    assert "slow" not in diagnose_text(f"8 GPUs of one server.\n{told}And then it hangs in the next step.\n")["outcome"]["why"]


def test_run_that_was_ended_by_hand_left_nothing_from_an_earlier_one():
    assert asked("3 GPUs. It stands forever in optimizer.step, ctrl-c is needed.\n", "earlier run", "py-spy") == [False, True]


def test_processes_that_do_not_end_after_the_work_are_looked_at_there():
    done = "Two nodes. Training completes and the last checkpoint is written, then the processes do not end, they hang there.\n"
    assert asked(done, "after the last line", "nc -vz") == [True, False]


def test_loopback_as_the_meeting_place_of_several_machines_is_the_cause():
    late = "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:\n"
    call = 'jax.distributed.initialize(coordinator_address="{}:1234", num_processes=2)\n'
    assert loud(f"We run JAX on two hosts with 4 GPUs each.\n{call.format('localhost')}{late}") == [("dns_hostname", "likely")]
    assert "dns_hostname" not in dict(loud(f"We run JAX on two hosts with 4 GPUs each.\n{call.format('10.1.2.3')}{late}"))
    assert "dns_hostname" not in dict(loud(f"We run JAX on one host with 4 GPUs.\n{call.format('localhost')}{late}"))


def test_job_that_stops_at_another_batch_each_time_made_progress():
    assert diagnose_text("4 GPUs, it hangs at another batch each time, with one GPU it works.\n")["causes"] == []


def test_more_threads_than_cores_are_a_question_of_a_slow_job_on_one_machine():
    assert asked("Training is very slow and the whole system lags, 8 GPUs of one server.\n", "OMP_NUM_THREADS") == [True]


def test_rank_whose_watchdog_reports_later_work_has_come_to_the_collective():
    alone = LATE.format(rank=0, seq=812, op="COALESCED", size=3276800)
    found = diagnose_text(alone + STATE.format(rank=1, queued=812) + STATE.format(rank=3, queued=812))
    assert "ranks 0-1, 3" in found["outcome"]["why"] and "rank 2 came" in found["outcome"]["why"]
    unlike = alone + STATE.format(rank=0, queued=812) + STATE.format(rank=1, queued=846) + STATE.format(rank=3, queued=846)
    assert loud(unlike) == [("rank_desync_app", "possible")]
    says = diagnose_text(unlike)["causes"][0]["evidence"][0]["says"]
    assert says == "rank 0 had queued work up to #812, ranks 1, 3 up to #846: they stand in different places"


@pytest.mark.parametrize(("op", "size"), [("RECV", "524288"), ("SEND", "524288"), ("COALESCED", "18446744073709551615")])
def test_numbers_of_messages_between_stages_differ_in_every_pipeline(op, size):
    waits = LATE.format(rank=3, seq=331, op=op, size=size) + LATE.format(rank=6, seq=329, op=op, size=size)
    assert loud(waits) == []
    assert loud(UNBATCHED + waits) == [("rank_desync_app", "likely")]
    assert loud(LATE.format(rank=3, seq=331, op="ALLREDUCE", size=9) + LATE.format(rank=6, seq=329, op="ALLREDUCE", size=9))[0][0] == "rank_desync_app"


def test_job_of_several_stages_is_asked_for_its_schedule():
    hangs = "4 GPUs, it hangs in the first step. "
    assert asked(f"{hangs}pipeline_parallel_degree = 4\n", "micro-batches") == [True]
    assert asked(f"{hangs}tensor_parallel_degree = 4\n", "micro-batches") == [False]


def test_stacks_below_the_names_of_ranks_are_compared_and_not_asked_for_again():
    gathers, pads = STACK.format(rank=0, call="_gather (zero/params.py:81)"), STACK.format(rank=1, call="_pad (trainer.py:20)")
    assert loud(gathers + pads) == [("rank_desync_app", "possible")] and asked(gathers + pads, "py-spy") == [False]
    assert loud(gathers + STACK.format(rank=1, call="_gather (zero/params.py:81)")) == []
    service = STACK.format(rank=1, call="init (wandb/sdk/wandb_init.py:1012)")
    assert loud(gathers + service) == [("slow_rank_or_io", "possible")]


def test_proxy_in_the_environment_counts_where_the_nodes_wait_for_each_other():
    waits = "Two nodes, both stay at\ngrpc_client.cc:416] Connecting to 10.1.2.4:6170\n"
    assert loud(f"{waits}http_proxy=http://proxy.corp:3128\n") == [("proxy_env", "possible")]
    assert loud(waits) == []


@pytest.mark.parametrize(
    "told", ["ping works both ways, and there is no firewall, iptables -L is empty", "firewalld is stopped on both and iptables is empty. What blocks it?"]
)
def test_firewall_that_a_report_rules_out_is_not_even_a_remark(told):
    assert diagnose_text(f"Horovod hangs on two nodes.\n{told}\n")["causes"] == []
    assert loud("Horovod hangs on two nodes.\nThe firewall blocks the high ports.\n")[0][0] == "firewall_ports"


def test_rank_that_waits_in_the_collective_too_is_no_longer_saving():
    saves = "0: Epoch 0, global step 2208: 'val_wer' reached 0.71220 (best 0.71220), saving model to '/w/a.ckpt' as top 5\n"
    waits = [LATE.format(rank=rank, seq=11209, op="ALLREDUCE", size=1) for rank in (0, 1, 2)]
    assert "watchdog_timeout_too_short" not in dict(loud(saves + waits[0] + waits[2]))
    assert dict(loud(saves + waits[1] + waits[2]))["watchdog_timeout_too_short"] == "likely"


def test_warning_of_a_fork_chooses_the_start_method_only_where_the_job_hangs():
    warned = "DeprecationWarning: This process (pid=751) is multi-threaded, use of fork() may lead to deadlocks in the child.\n"
    assert asked(f"The test never ends.\n{warned}", "multiprocessing_context='spawn'") == [True]
    assert loud(warned) == []


def test_advice_is_that_of_the_kind_of_job():
    def person(text):
        return next(cause["remedy"]["person"] for cause in diagnose_text(text)["causes"] if cause["cause"] == "rank_desync_app")

    waits = LATE.format(rank=3, seq=8, op="ALLREDUCE", size=9) + LATE.format(rank=6, seq=9, op="ALLREDUCE", size=9)
    assert "pad shards" in person(waits) and "in a server" not in person(waits) and "in a pipeline" not in person(waits)
    serves = f"I serve a model with vLLM on 8 GPUs, and it hangs.\n{waits}"
    assert "pad shards" not in person(serves) and "in a server" in person(serves)
    assert "batch sends and receives" in person(UNBATCHED + LATE.format(rank=3, seq=331, op="RECV", size=9))
    address = "(autoscaler +13s) Error: No available node types can fulfill resource request {'node:192.0.2.5': 0.001, 'GPU': 1.0}.\n"
    assert "VLLM_HOST_IP" in diagnose_text(address)["causes"][0]["remedy"]["person"]
