"""A cause that stands for a family says which member its line shows; what the reader does fits that
member, its layer and what the report compares."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.rendering import render_table

NO_HOST = "ValueError: host not found: Name or service not known\n"
# text -> (words of the answer, words that must not be in it)
REMEDIES = {
    f"The worker pod crashes until the master pod is up:\n{NO_HOST}": (
        "resolves only once the pod is ready",
        "is_host",
    ),
    NO_HOST: ("getent hosts NAME", "kubectl"),
    f"INFO 2024-02-03 11:12:13,785 Etcd machines: ['http://0.0.0.0:2379']\n{NO_HOST}": (
        "--advertise-client-urls",
        "is_host",
    ),
    "RuntimeError: [enforce fail at ../gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ib7\n": (
        "grep -rn SOCKET_IFNAME",
        "Ray",
    ),
    "Only in docker, not on the hosts:\nc1:2:3 [0] NCCL WARN Call to ibv_modify_qp failed with error No such device\n": (
        "inside the container",
        "cabling",
    ),
}


@pytest.mark.parametrize("text", sorted(REMEDIES))
def test_remedy_is_that_of_the_member_which_the_line_shows(answer, text):
    shown = " ".join(render_table(answer(text)).split())
    wanted, elsewhere = REMEDIES[text]
    assert wanted in shown
    assert elsewhere not in shown


def test_sizes_that_differ_between_ranks_compare_the_nodes_first(answer):
    line = (
        "n1:2:3 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 198.51.100.6<5>"
        " collective mismatch error, local size 9 remote size 6"
    )
    found = answer(
        f"It fails when we train over several machines. NCCL version is 2.14.3.\n{line}\n"
    )
    assert [one["cause"] for one in found["causes"] if one["severity"] != "info"] == [
        "rank_desync_app"
    ]
    assert found["causes"][0]["remedy"]["person"].startswith("compare the nodes first")


def test_remarks_that_change_nothing_are_not_shown_beside_a_question(answer):
    plugin = "n1:3:3 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)\n"
    assert "nothing to do" in render_table(
        answer(f"{plugin}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 400\n")
    )
    assert "nothing to do" not in render_table(
        answer(f"training hangs on 2 GPUs at the first step\n{plugin}")
    )
