"""Nothing is asked for that a report has answered, that is another program's, or that its own contrast rules out; each outcome leads on."""

from __future__ import annotations

import re

import pytest

from unhang.core import catalogue
from unhang.jobs.diagnose.diagnosing import diagnose_text

WARNED = "NCCL_DEBUG=INFO python serve.py\n[1] enqueue.cc:1500 NCCL WARN Cuda failure 1 'invalid argument'\nFailed, NCCL error 'unhandled cuda error'\n"
STACKS = 'Two GPUs stand still.\nStacks of the dump:\n\n  File "engine/loop.py", line 1698, in step\n  File "engine/cache.py", line 33, in check\n'
STALL = "(EngineCore_DP0 pid=1454) INFO 05-28 14:43:27 [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds.\n"
GROUP = "TimeoutError: Timed out waiting for placement groups to be ready. The cluster may not have enough resources.\n"
SILENT_TF = "it hangs\ngrpc_channel.cc:301] Initialize GrpcChannelCache for job worker -> {0 -> localhost:1234, 1 -> localhost:2345}\n"
STILL_WAITING = "CreateSession still waiting for response from worker: /job:ps/replica:0/task:0\nIt hangs, two nodes, kubectl logs.\n"
OVERLOAD = "The server hangs for good under overload.\npython -m sglang.launch_server --tp 8"
# a report -> (what has to be asked for, what must not)
ASKED = [
    # what it has already
    (WARNED, ("libnccl",), ("NCCL_DEBUG_SUBSYS", "py-spy", "enforce-eager")),
    (STACKS, (), ("py-spy dump",)),
    ("Two GPUs stand still. py-spy dump of rank 0:\n\n    recv (train.py:25)\n", ("py-spy dump",), ()),  # of the others it has none
    ("vllm serve m -tp 2 --enforce-eager hangs at the start", ("--disable-custom-all-reduce",), ("--enforce-eager",)),
    ("Two GPUs hang at the first step, GPUs at 100 %. nccl-tests run fine on them.", ("py-spy",), ("all_reduce_perf",)),
    ("ZeRO-3 hangs on two GPUs, ZeRO-2 works.", ("how often it calls each part",), ("NCCL_P2P", "all_reduce_perf", "environ")),
    ("Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 'x'\nWith one process it is fine.\n", (), ("py-spy", "with one process")),
    # another program's
    ("python -m sglang.launch_server --tp 2 hangs at the start", ("--disable-cuda-graph",), ("enforce-eager", "VLLM_")),
    ("trtllm-serve m --tp_size 2 hangs at the start", ("cuda_graph_config: null",), ("enforce-eager", "disable-cuda-graph")),
    ("lmdeploy serve api_server m --tp 2 hangs at the start", ("without CUDA graphs",), ("enforce-eager", "disable-cuda-graph")),
    ("swift rlhf --rlhf_type orpo hangs with two GPUs at its first step", ("py-spy",), ("engine",)),
    ("We call jax.distributed.initialize() and it hangs on two nodes.", ("coordinator_address", "nc -vz COORDINATOR"), ("torchrun", "MASTER")),
    ("Our jax code hangs at random on one host with several GPUs.", ("newest jaxlib",), ("init_process_group", "RANK")),
    ("python -m paddle.distributed.launch hangs at its start on two nodes, nothing happens.", ("PADDLE_TRAINER_ENDPOINTS",), ("init_process_group",)),
    ("My C program with CUDA-aware Open MPI and four ranks on one box deadlocks in MPI_Allreduce.\nmpirun -np 4 ./solver\n", ("UCX_TLS",), ("py-spy", "NCCL")),
    (SILENT_TF, ("ss -ltnp", "index"), ("MASTER_ADDR", "RANK")),
    (STILL_WAITING, ("the pod's own address",), ("MASTER",)),
    ("#include <nccl.h>\nncclCommInitAll(comms, 2, devs);\nit hangs with two GPUs\n", ("gdb -p",), ("py-spy", "torchrun", "RANK")),
    ("import ray\nTwo nodes.\n" + GROUP, ("ray status", "raylet"), ("MASTER", "RANK,")),
    # the contrast
    ("Intel hosts and AMD hosts mixed hang at 64 KB. Four Intel nodes alone work.", ("NCCL_DEBUG_SUBSYS=TUNING", "NCCL_ALGO"), ("ibstat",)),
    ("ORPO hangs on two GPUs; SFT and DPO both work.", ("newest release",), ("NCCL_P2P", "all_reduce_perf")),
    (STALL + "vllm serve m: it hangs when a prompt comes up to max-model-len\n", ("without the option that the report names", "newest release"), ("NCCL_P2P",)),
    (OVERLOAD, ("a decision that each makes for itself", "newest release"), ("NCCL_P2P",)),
    ("On two nodes it trains, or the processes are gone after some steps. Sometimes it hangs.", ("the nodes of each run", "exit code"), ()),
    ("docker run --memory=100g sglang: the server hangs, 0 MiB on two of the GPUs", ("exit code or signal", "memory.events"), ()),
    ("Four nodes with Ray 2.40 and vLLM: tensor parallel size of 2 works, 4 hangs when the engines are created.", ("node of each bundle",), ("enforce-eager",)),
    ("The test hangs, and it does so even with only one GPU.", ("a socket", "a lock"), ("NCCL_P2P",)),
    ("vllm serve m on two nodes hangs at the start with tensor parallel size 16", ("the launch line of each node", "nc -vz"), ()),
    # Chinese
    ("用 openrlhf 跑 GRPO，单机，打印完参数就没动静了，不报错，四张卡都没有占用。\nray start --head\n", ("ray status",), ("enforce_eager",)),
    ("ray start --head\n4 台机器。vllm tensor parallel 设成 2 的时候一切正常；改成 4 就卡住，GPU 利用率 0。", ("node of each bundle",), ("enforce",)),
    ("两张卡跑 orpo 进度条卡死，也不报错；dpo、sft 都没有这个问题。", ("newest release",), ("NCCL_P2P", "engine")),
    ("ZeRO3 训练停住不动，什么都不打印。换成 ZeRO2 能正常训练。", ("how often it calls each part",), ("NCCL_P2P",)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted", "needless"), ASKED, ids=[text[:40] for text, _, _ in ASKED])
def test_only_what_is_open_is_asked_for(text, wanted, needless):
    asked = " | ".join(diagnose_text(text)["collect_next"])
    assert [one for one in wanted if one not in asked] == [], asked
    assert [one for one in needless if one in asked] == [], asked


@pytest.mark.parametrize("text", [
    "Two GPUs hang. DPO works with one GPU.",  # the same trainer, fewer GPUs
    "Two GPUs hang. ZeRO-2 works on one GPU.",
    "Two GPUs hang at the first step. Does ZeRO-2 work?",
])  # fmt: skip
def test_smaller_runs_and_questions_rule_nothing_out(text):
    assert any("NCCL_P2P_DISABLE=1" in one for one in diagnose_text(text)["collect_next"])


def test_no_fork_ends_in_a_guess():
    """An outcome in which all is as it should be leads to the next question, and not to whatever is left."""
    guess = re.compile(r"(?:all right|both right|all alone and Running|both|all alike): the (?:network|ranks|program|interface|ranks' numbers)(?:;|$)")
    assert [row["id"] for row in catalogue.table("next_steps").values() if any(guess.search(one) for one in row["tells"])] == []
