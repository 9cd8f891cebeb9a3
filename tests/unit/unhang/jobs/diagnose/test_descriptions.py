"""Situations that people describe without a message, in the words of different people; questions, plans and harmless remarks are no situation."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

DESCRIBED = {
    "session_closed": (
        "I start the run over ssh with nohup. When I close my terminal the training is killed.",
        "The job dies as soon as I log out of the server.",
        "my training gets killed whenever the ssh connection drops, nothing else in the log",
        "After I shut my laptop the run is gone, the last epoch is missing.",
        "once the vpn session is closed all processes die, with no error from cuda",
        "We lose the ssh session at night and the job is dead in the morning.",
        "every worker stops after the terminal is closed, even with nohup",
        "If the PuTTY window is closed, it ends with SIGHUP.",
    ),
    "orphan_processes_hold_gpu": (
        "I stopped the training with Ctrl-C and the GPU memory is still occupied, the next run does not fit.",
        "we cancelled the job with scancel. The memory of the card stays allocated.",
        "After the script was killed nvidia-smi still shows 20 GB used on it.",
        "I interrupted it with ctrl+c but the gpu memory was never freed.",
        "The last run crashed. The VRAM remains full and there is no process to see.",
        "killed the notebook, but the memory on the gpu is not released",
        "After I pressed control-C the cards keep their memory reserved.",
        "I had stopped the job, and gpu 2 is still busy with a process of mine.",
    ),
    "oom": (
        "Every rank loads the whole dataset into memory, and the machine runs out of RAM.",
        "each process keeps its own copy of the cache, then the job is killed because the RAM is full",
        "RAM fills up during the first epoch and then the whole machine freezes.",
        "With 8 workers all processes hold a full copy of the data. It ends with the OOM killer.",
        "The system memory grows until the server becomes unresponsive, I have to press the button.",
        "swap is full after some minutes and the pc locks up",
        "It uses all the RAM and the desktop freezes after that.",
        "one copy per rank of the checkpoint is read, host memory goes up to 100 %",
    ),
    "rank_device_mapping": (
        "nvidia-smi shows that all processes are on GPU 0 and the other cards are empty.",
        "GPU 0 has the memory of all ranks, we forgot set_device in our script.",
        "The first GPU is full while the others are half empty, so the batch has to be small.",
        "there are 4 python processes on gpu 0 and one on each of the other cards",
        "every rank also has a small context on cuda:0",
        "I see that card 0 has eight processes, and the others have one each",
        "all of the workers use GPU 0 and nothing runs on the rest",
        "our code has no torch.cuda.set_device and gpu 0 holds extra memory of the other ranks",
    ),
    "cpu_affinity": (
        "Only one core is busy and the training is slow.",
        "all workers run on the same core, taskset shows the mask of it",
        "htop shows that just two of the 32 cores do something, and an epoch is slower than on the laptop.",
        "The loaders are all pinned to core 0 and every worker shares one core.",
        "only 4 cpus are used of the 64, after we reset the affinity it was fast",
        "In top one core is at 100 % and the rest idle, it is very slow.",
        "eight processes share the same core, the cpuset of the job has it only",
        "all our ranks are bound to the first cores, all processes on one core",
    ),
    "software_versions_differ": (
        "The version of ray is not the same on both machines, and it hangs at the start.",
        "the second node has an older version of torch than the other, it fails with strange errors on two nodes",
        "We saw that the packages differ between the nodes and the job crashes.",
        "it dies on two hosts. The commit is different on each machine.",
        "The workers have different python versions on the two nodes and the objects cannot be read, it fails",
        "both servers were installed by hand, the releases are not equal on the two, and the job hangs",
        "with two machines it breaks, and the wheel on one host is newer than on the other",
        "The environment on the second server is older, the run fails with both nodes.",
    ),
    "stale_store": (
        "We use init_method file:///shared/sync and the file is still there from the last run, now it never starts.",
        "the init file of a crashed run was left over and nothing joins",
        "There is a stale FileStore file of an earlier run and the ranks never meet.",
        "the rendezvous file exists already, it was never deleted after the job was killed",
        "init_method='file:///tmp/x' and the file is left from the previous training",
        "The sync file was not removed, it is from an old run of a colleague.",
        "our file:///scratch/ddp_init is left behind when it crashes, the next start hangs",
        "the shared file store still exists from the first attempt, and it hangs",
    ),
    "slow_rank_or_io": (
        "Rank 0 tokenizes the data for an hour while the others wait.",
        "the preprocessing runs on the main process only and takes 2 hours, then it fails",
        "the first rank builds the index, that takes ages, and the other ranks give up",
        "Only one rank downloads the weights, the other ranks wait for it.",
        "the map on rank 0 needs 45 minutes, after that everything is dead",
        "caching is done by the main process and takes too long for the others",
        "the main process converts the files for hours and the rest sits there",
        "tokenization on the main process takes 40 min and then it stops",
    ),
    "nvlink_down": (
        "topo -m shows NV4 between GPU 2 and 3, and no NVLink at all between 0 and 1.",
        "The bridge is on both pairs but nvlink is inactive on the first one.",
        "between the first two it says SYS instead of NV4, the other pair is fast",
        "Our two cards are bridged, but on both zero links are reported.",
        "GPU0 GPU1 is NV12 and for the rest there are no nvlinks",
        "we have bridges on all cards, the links of one: nvlink down",
        "I looked at nvidia-smi nvlink, it shows 0 links, although the cards are bridged",
        "The second pair has NV6, and the first pair is missing NVLink.",
    ),
    "pcie_link_degraded": (
        "lspci shows x4 instead of x16 for the third card, and it is slower than the others.",
        "One GPU has only 4 lanes and every step is slow with it.",
        "the card runs at x1 but it should be x16, copies take longer",
        "The link width is 4x on that GPU, the bandwidth is low",
        "it is at gen1 instead of gen4 under load and the speed is a third",
        "it is slow on one gpu, and the LnkSta of it says width x4",
        "with the riser it has just x4 and the training takes much longer",
        "gpu 5 is down to x2 and all ranks are slow",
    ),
    "cuda_driver_too_old": (
        "The container finds no GPU on the old nodes. On nodes with a newer driver it works.",
        "Since the new image cuda is not available, we still have the old driver on the host.",
        "The node has an older driver, torch.cuda.is_available() returns False there.",
        "after updating the driver it works, before it did not find any gpu",
        "It sees no GPU here. The driver is from 2021 on this machine.",
        "on the cluster where the driver is newer the same image runs, here it detects no device",
        "the job runs on the cpu because of the outdated driver of the box",
        "works fine on the machine with the latest driver, on ours there is no cuda device found",
    ),
    "acs_iommu": (
        "4 GPUs are slower than one, ACS is enabled in the bios.",
        "The IOMMU is on and the job hangs with two GPUs.",
        "lspci shows ACSCtl: SrcValid+ on the bridges and the bandwidth is low",
        "we found that VT-d was on, two cards are slow together",
        "AMD-Vi is active here, it hangs at the first all-reduce",
        "Someone had turned on ACS and since then it is slow between the cards.",
        "one card takes 0.5 s, two cards take 2 s and it is slower, the IOMMU was left on",
        "multi gpu gets stuck, iommu is enabled by default on this board",
    ),
}

ONLY_REMARKS = (
    "Does the job die if I close my laptop?",
    "I close the terminal and the job goes on, thanks to tmux.",
    "Should I stop it with ctrl+c, and is the memory then still used?",
    "I stopped the run with ctrl+c and the memory was free at once.",
    "Does each rank load its own copy, and how much RAM do I need?",
    "We plan to use 512 GB of RAM, every process may keep its own copy.",
    "Do all ranks use GPU 0?",
    "This machine has 64 cores and it is fast.",
    "Are the versions the same on both machines?",
    "Should I use init_method file:///tmp/x, and is the file left from an old run then a problem?",
    "Is it ok that rank 0 downloads the data while the others wait?",
    "NV12 on all pairs, the bridges are on.",
    "All cards run at x16 and it is fast.",
    "Which driver is needed for this image?",
    "ACS is disabled and it is fast.",
    "Could a port scan of the security people crash it?",
)


@pytest.mark.parametrize(("cause", "post"), [(cause, post) for cause, posts in DESCRIBED.items() for post in posts])
def test_described_situation_leads_to_its_cause(cause, post):
    causes = diagnose_text(post + "\n")["causes"]
    assert causes and causes[0]["cause"] == cause


@pytest.mark.parametrize("post", ONLY_REMARKS)
def test_question_plan_or_harmless_remark_is_no_situation(post):
    assert [one for one in diagnose_text(post + "\n")["causes"] if one["severity"] != "info"] == []


@pytest.mark.parametrize(("cause", "post"), [(cause, posts[0]) for cause, posts in DESCRIBED.items()])
def test_description_alone_is_no_error(cause, post):
    assert [one["cause"] for one in diagnose_text(post + "\n")["causes"] if one["severity"] in ("error", "critical")] == []
