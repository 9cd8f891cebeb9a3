"""What people say of experiments: the effect that a sentence tells, the causes that it supports, and sentences that are no experiment."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.matching.signatures import load_signatures
from unhang.jobs.diagnose.matching.statements import effect_of, is_spoken

ROWS = {row.id: row for row in load_signatures()}

# sentence, subject, the effect that it tells of the subject
EFFECTS = [
    ("With NCCL_P2P_DISABLE=1 it runs", "NCCL_P2P_DISABLE=1", "works"),
    ("I tried a lot and found that it works when I set NCCL_P2P_DISABLE=1.", "NCCL_P2P_DISABLE=1", "works"),
    ("should I set NCCL_P2P_DISABLE=1 or NCCL_IB_DISABLE=1 beforehand, as one reads everywhere?", "NCCL_P2P_DISABLE=1", "asked"),
    ("I thought switching off nvlink would help (NCCL_P2P_DISABLE=1), but no.", "NCCL_P2P_DISABLE=1", "asked"),
    ("NCCL_P2P_DISABLE=1 changes nothing here.", "NCCL_P2P_DISABLE=1", "same"),
    ("It hangs unless I set NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLE=1", "works"),
    ("Since yesterday I start it with `export NCCL_P2P_DISABLE=1` and so far it did not freeze once (one full run).", "NCCL_P2P_DISABLE=1", "works"),
    ("tried: pytorch 1.10, NCCL_P2P_DISABLE=1, gloo. none of it helps.", "NCCL_P2P_DISABLE=1", "same"),
    ("- when I use IB it blocks, with tcp there is no problem (just slow)", "with tcp", "works"),
    ("- when I use IB it blocks, with tcp there is no problem (just slow)", "IB", "fails"),
    ("works on the host, hangs in docker", "the host", "works"),
    ("works on the host, hangs in docker", "in docker", "fails"),
    ("The hang goes away if I drop the auxiliary head, which only gets a loss for part of the samples.", "drop the auxiliary head", "works"),
    ("* 2 GPUs with the empty images filtered out: trains", "empty images filtered out", "works"),
    ("As root it works, as the test user it does not.", "As root", "works"),
    ("With --enforce-eager the identical setup serves for days under the same traffic.", "--enforce-eager", "works"),
    ("edit: swapped only nccl to 2.30.4, graphs on again: no hang since yesterday.", "nccl to 2.30.4", "works"),
    ("Running with enforce_eager=True since Friday, seems to be fixed with it, but we lose 20%", "enforce_eager=True", "works"),
    ("The training runs since downgrading to driver 535.", "driver 535", "works"),
    ("since we updated the driver it no longer works", "updated the driver", "fails"),
    (
        "ssh'd in and `sudo mount -o remount,size=8G /dev/shm`, without any luck. batch size 1: same. num_workers 0: it trains, but slowly.",
        "num_workers 0",
        "works",
    ),
    ("ssh'd in and `sudo mount -o remount,size=8G /dev/shm`, without any luck. batch size 1: same.", "/dev/shm", "same"),
    ("Does it help to set NCCL_P2P_DISABLE=1?", "NCCL_P2P_DISABLE=1", "asked"),
    ("Somebody said NCCL_P2P_DISABLE=1 helps.", "NCCL_P2P_DISABLE=1", "asked"),
    ("If both processes validate, all is fine!", "both processes validate", "works"),
    ("With a fixed number of trials instead of the time limit I have not seen it so far.", "fixed number", "works"),
    ("each of the two trains alone?? -> gpu 0 yes, gpu 1 alone also stops after a while under load.", "gpu 1 alone", "same"),
    ("with 7 it works just fine", "with 7", "works"),
    ("After we took that export out of the start script the same jobs run.", "took that export out", "works"),
    ("zero2 same config -> ok. save_strategy=no -> runs through.", "save_strategy=no", "works"),
    ("num_gpus=1 and cpu offload it gets past this.", "num_gpus=1", "works"),
    ("Without `if` it is written and the training goes on.", "Without `if`", "works"),
    ("NCCL_P2P_DISABLE=1 fixed it for me", "NCCL_P2P_DISABLE=1", "works"),
    ("This can potentially cause a hang if this rank to GPU mapping is incorrect.", "GPU mapping", "asked"),
]

# a post, and the cause that it shows
SHOWN = [
    ("Two A100 hang in the first all_reduce. Went away after I put NCCL_P2P_DISABLE=1 into the environment.", "acs_iommu"),
    ("training on 2x RTX 4090 gets stuck at step 0, but as soon as NCCL_P2P_DISABLE=1 is set it trains", "unsupported_p2p_geforce"),
    ("Only since we booted with iommu=pt the four cards train, before that they were stuck", "acs_iommu"),
    ("The job hung on two nodes. Fixed by disabling ACS in the BIOS.", "acs_iommu"),
    ("It hangs with the container, on the host it works. /dev/shm is 64M inside. With --shm-size=16g no more hangs.", "shm_too_small"),
    ("we get stuck at init on 2 nodes; with NCCL_SOCKET_IFNAME=ens5 everything starts", "wrong_interface"),
    ("The second node never joins. After stopping firewalld on both it joined and training runs.", "firewall_ports"),
    ("all ranks hang at step 1200. drop_last=True solved the issue", "rank_desync_app"),
    (
        "Job dies after 30 minutes with a timeout. Raising the timeout to 3 hours fixed it, preprocessing takes 50 minutes on rank 0.",
        "watchdog_timeout_too_short",
    ),
    ("Multi node all-reduce hangs. With NCCL_IB_GID_INDEX=3 it no longer hangs.", "ib_misconfig"),
    ("hang in ncclAllReduce after some hours, gone after downgrading nccl to 2.18.3", "nccl_bug"),
    ("rm -rf ~/.cache/torch_extensions did the trick, it had been stuck there for hours", "fused_kernel_build"),
    ("After I killed the old run the GPU memory is not released and the next one gets OOM", "orphan_processes_hold_gpu"),
    ("The run fails as a normal user, as root it works; RDMA registration returns ENOMEM, mmap of uverbs0 gives ENOMEM", "memlock_ulimit"),
    ("It is only slow when the dataset is on NFS, from the local SSD it's 5 times faster", "slow_rank_or_io"),
    ("with srun instead of plain python all four ranks start and it works, before it was stuck with one", "launch_mismatch"),
    ("Swapping the power cable fixed it, before the second card stopped under load", "xid_hardware"),
    ("our job hangs on 4 GPUs; we commented out the line NCCL_ALGO=Tree and since then it runs", "env_var_misconfig"),
    ("After we unset NCCL_PROTO the all-reduce runs at full speed again", "env_var_misconfig"),
    ("vLLM TP=4 freezes under load, without CUDA graphs it has been stable for a week", "nccl_bug"),
    ("with mtu 1500 on both ends the collectives pass, with 9000 they hang", "mtu_mismatch"),
    ("starting nvidia-fabricmanager fixed it, before cuda did not start on the HGX board", "fabric_manager_down"),
    ("the istio sidecar was the reason: without the sidecar the pods connect and the job runs", "service_mesh_sidecar"),
    ("after unsetting http_proxy the second node joins and it works", "proxy_env"),
    ("every process shows up on GPU 0, with torch.cuda.set_device(local_rank) that is solved", "rank_device_mapping"),
]

# questions, advice, attempts without an effect, and thanks
SILENT = [
    "Should I set NCCL_P2P_DISABLE=1 for two 4090?",
    "How do I set up 8 GPUs with torchrun? Is --ipc=host needed?",
    "You could try NCCL_P2P_DISABLE=1, it helped others.",
    "The docs recommend --shm-size=16g for this image.",
    "NCCL_P2P_DISABLE=1 did not change anything.",
    "thanks, solved, works now",
    "Thank you, it was my fault, all 8 GPUs train fine now.",
    "I read that disabling IOMMU in the BIOS may help.",
    "Please install nvidia-fabricmanager and restart it.",
    "This can potentially cause a hang if this rank to GPU mapping is incorrect.",
    "Is it normal that the evaluation takes 40 minutes?",
    "We plan to buy a second node. Would the firewall have to be open between them?",
    "What does find_unused_parameters=True do?",
    "If you see a timeout, increase ddp_timeout.",
    "In theory it works without a container too.",
    "With 2 nodes it trains twice as fast as with one, as expected.",
    "Upgraded the driver to 570 yesterday, everything still works.",
    "All ranks call save_checkpoint and it works.",
]

# id of a signature, sentences that it reads, sentences that it does not
MORE_WORDINGS = [
    (
        "p2p-off-reported",
        [
            "Since yesterday I start it with `export NCCL_P2P_DISABLE=1` and so far it did not freeze once",
            "it works when I set NCCL_P2P_DISABLE=1",
            "it hangs unless I set NCCL_P2P_DISABLE=1",
        ],
        [
            "should I set NCCL_P2P_DISABLE=1?",
            "somebody wrote that NCCL_P2P_DISABLE=1 could help",
            "I thought switching P2P off would help (NCCL_P2P_DISABLE=1), but no",
            "NCCL_P2P_DISABLE=1: same hang",
        ],
    ),
    (
        "ib-off-reported",
        ["when I use IB it blocks, with tcp there is no problem (just slow)"],
        ["with TCP it hangs too", "do I have to set NCCL_IB_DISABLE=1?"],
    ),
    (
        "outside-container-works-reported",
        ["I just ran the same stage outside docker, no problem there."],
        ["outside the container it hangs as well", "does it work outside the container?"],
    ),
    (
        "docker-shm-reported",
        ["adding --ipc=host to the docker run line fixed the issue for me", "with more shared memory it works"],
        ["shouldn't --shm-size be enough?", "with --shm-size=16g the same error"],
    ),
    ("single-gpu-works-reported", ["on one GPU (`CUDA_VISIBLE_DEVICES=0`) the same script trains without trouble"], []),
]

LINES_OF_PROGRAMS = [
    "RuntimeError: it hangs and we do not know why",
    "slurmstepd: error: pyxis:     [WARN] Kernel module nvidia_uvm is not loaded. Make sure the NVIDIA device driver is installed and loaded",
    "2026-02-11 18:07:40 INFO the job is still in the queue and it waits",
    "gpu01:212:530 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.",
    "10.5.20.32: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/ProcessGroupNCCL.cpp:1333, remote process exited or a network error",
    "export NCCL_P2P_DISABLE=1",
]


@pytest.mark.parametrize(("sentence", "subject", "effect"), EFFECTS)
def test_effect_is_read_from_the_clause_of_the_subject(sentence, subject, effect):
    start = sentence.index(subject)
    assert effect_of(sentence, start, start + len(subject)) == effect


@pytest.mark.parametrize(("post", "cause"), SHOWN)
def test_post_shows_its_cause(post, cause):
    causes = diagnose_text(post)["causes"]
    assert causes[0]["cause"] == cause and causes[0]["severity"] != "info"


@pytest.mark.parametrize("post", SILENT)
def test_question_advice_or_thanks_is_no_fault(post):
    assert [cause for cause in diagnose_text(post)["causes"] if cause["severity"] != "info"] == []


@pytest.mark.parametrize(("name", "read", "unread"), MORE_WORDINGS)
def test_older_signatures_of_reporters_read_any_wording_of_an_effect(name, read, unread):
    assert [text for text in read if not ROWS[name].search(text)] == []
    assert [text for text in unread if ROWS[name].search(text)] == []


@pytest.mark.parametrize("line", LINES_OF_PROGRAMS)
def test_line_of_a_program_is_not_spoken(line):
    assert not is_spoken(line)


def test_list_of_attempts_is_spoken_without_whole_sentences():
    assert is_spoken("enforce_eager -> ok") and is_spoken("- zero3 with offload: hangs") and is_spoken("it worked until we updated the nodes")
