"""A cause that stands for a family says which member its line shows; what the reader does fits that member, its layer and what the report compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.core.catalogue import table
from unhang.jobs.diagnose.fitting_remedies import OWN_WORDS
from unhang.jobs.diagnose.matching.signatures import load_causes, load_signatures
from unhang.jobs.diagnose.rendering import render_table

RULES = Path(__file__).resolve().parents[5] / "tools/unhang/jobs"
NO_HOST = "ValueError: host not found: Name or service not known\n"
# text -> (words of the answer, words that must not be in it)
REMEDIES = {
    f"The worker pod crashes until the master pod is up:\n{NO_HOST}": ("resolves only once the pod is ready", "is_host"),
    NO_HOST: ("getent hosts NAME", "kubectl"),
    f"INFO 2024-02-03 11:12:13,785 Etcd machines: ['http://0.0.0.0:2379']\n{NO_HOST}": ("--advertise-client-urls", "is_host"),
    "RuntimeError: [enforce fail at ../gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ib7\n": ("grep -rn SOCKET_IFNAME", "Ray"),
    "Only in docker, not on the hosts:\nc1:2:3 [0] NCCL WARN Call to ibv_modify_qp failed with error No such device\n": ("inside the container", "cabling"),
}

TRACE = (
    "{host}:11:21 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f01 recvbuff 0x7e01 count {count} datatype 7 op 0 root 0 comm 0x55{comm} "
    "[nranks=2] stream 0x5c\n"
)
# report -> (words of what is asked next, words that must not be in it)
ASKED = {
    "Our job over two nodes hangs.\nmpirun -np 2 -H n1:1,n2:1 -x NCCL_DEBUG=INFO hello\n": ("oob_tcp_if_include", "init_process_group"),
    "hvd.init() hangs on one machine with 2 GPUs\n": ("which -a mpirun", "NCCL_P2P_DISABLE"),
    "Our NCCL Alltoall, a loop over the ranks with send and recv, hangs on 2 GPUs.\n": ("peer, count and datatype", "py-spy"),
    "It ran fine with jax 0.9.1. With 0.9.2 jax.distributed hangs on 2 nodes under Slurm.\n": ("the release before of what was changed", "iostat"),
    "FSDP with torch 2.9.0.dev20250627+cu128 hangs on 4 V100.\n": ("the last stable release", "iostat"),
    "torchrun: with two GPUs this works. With four A100 it hangs while it saves the checkpoint at the end of the epoch.\n": (
        "all_reduce_perf",
        "iostat",
    ),
    "torch training hangs, no matter if I use one GPU or several, after the line training ...\n": ("no other rank has a part in it", "NCCL_P2P"),
}


@pytest.mark.parametrize("text", sorted(REMEDIES))
def test_remedy_is_that_of_the_member_which_the_line_shows(answer, text):
    shown = " ".join(render_table(answer(text)).split())
    wanted, elsewhere = REMEDIES[text]
    assert wanted in shown
    assert elsewhere not in shown


def test_evidence_with_a_remedy_of_its_own_exists():
    code = "".join(path.read_text(encoding="utf-8") for path in RULES.rglob("*.py"))
    known = {signature.id for signature in load_signatures()}
    causes = load_causes()
    for row in (row for name in OWN_WORDS for row in table(name).values()):
        assert row.get("person") or row.get("title") or row.get("check") or row.get("means")
        assert row.get("cause") in (None, *causes)
        for name in row["evidence"]:
            traits = {name.removeprefix("job:"), name.removeprefix("job:").replace("-", " ")}  # evidence from a script is named after the script's trait
            assert name in known or any(f'"{one}"' in code for one in traits), name


@pytest.mark.parametrize("text", sorted(ASKED))
def test_what_is_asked_fits_the_layer_and_the_contrast(answer, text):
    asked = " ".join(answer(text)["collect_next"])
    wanted, elsewhere = ASKED[text]
    assert wanted in asked
    assert elsewhere not in asked


@pytest.mark.parametrize("hangs", [True, False])
@pytest.mark.parametrize("unlike", [True, False])
def test_calls_of_several_communicators_in_unlike_order_make_a_hang(answer, unlike, hangs):
    """Two hosts, two communicators: one host launches 3 elements before 2, the other 2 before 3."""
    orders = {"n1": (3, 2), "n2": (2, 3) if unlike else (3, 2)}
    text = "".join(TRACE.format(host=host, count=count, comm=f"{host[1]}{count}") for host, counts in orders.items() for count in counts)
    first = answer(text + ("and there it hangs for ever\n" if hangs else ""))["causes"][:1]
    assert ("unlike order" in "".join(one["title"] for one in first)) is (unlike and hangs)


def test_sizes_that_differ_between_ranks_compare_the_nodes_first(answer):
    line = "n1:2:3 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 198.51.100.6<5> collective mismatch error, local size 9 remote size 6"
    found = answer(f"It fails when we train over several machines. NCCL version is 2.14.3.\n{line}\n")
    assert [one["cause"] for one in found["causes"] if one["severity"] != "info"] == ["rank_desync_app"]
    assert found["causes"][0]["remedy"]["person"].startswith("compare the nodes first")


def test_remarks_that_change_nothing_are_not_shown_beside_a_question(answer):
    plugin = "n1:3:3 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)\n"
    assert "nothing to do" in render_table(answer(f"{plugin}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 400\n"))
    assert "nothing to do" not in render_table(answer(f"training hangs on 2 GPUs at the first step\n{plugin}"))


def test_module_without_which_it_works_is_not_missing(answer):
    line = "n1:2:3 [0] transport/net_ib.cc:788 NCCL WARN NET/IB : Got completion with error 4, opcode 1, len 21938, vendor err 81\n"
    found = answer(f"I get this error whenever the kernel module nv_peer_mem is loaded.\n{line}")
    assert "gdr_peermem_missing" not in [one["cause"] for one in found["causes"]]
    assert not any(one["workaround"] for one in found["causes"])
