"""Events on a node at the time of the failure are added to the suspect; counters that rise on
healthy machines are not."""

from __future__ import annotations

import pytest
from smoke_runs import stalled

from unhang.core.schemas.check import check_schema
from unhang.core.verdict.likely_causes import with_likely
from unhang.core.verdict.suspect import Suspect
from unhang.smoke.counter_rates import Rise
from unhang.smoke.result import clues_of, where_of

STACK = """Thread 0x00007f5385b106c0 (most recent call first):
  File "/x/unhang_smoke.py", line 2107 in keep_watch
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f5386aa1b80 (most recent call first):
  File "/venv/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/x/unhang_smoke.py", line 1002 in collective
  File "/x/unhang_smoke.py", line 2088 in run_phase
"""


def node(**seen):
    """Evidence of one node; empty by default."""
    return {
        "host": "gpu001",
        "kernel_log": [],
        "counters": {},
        "nvlink": {},
        "nvml": None,
        "nccl_warnings": [],
        **seen,
    }


@pytest.mark.parametrize(
    "seen, clue",
    [
        (
            {
                "kernel_log": [
                    "usb 1-1: new device",
                    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
                ]
            },
            "Xid (PCI:0000:3b:00): 79",
        ),
        (
            {
                "kernel_log": [
                    "NVRM: Xid (PCI:0000:c4:00): 45, pid=2, name=python3, Ch 00000001 caused by"
                    " previous Xid 149"
                ]
            },
            "caused by previous Xid 149",
        ),
        (
            {
                "kernel_log": [
                    "nvidia 0000:83:00.0: PCIe Bus Error: severity=Uncorrected (Fatal),"
                    " type=Transaction Layer"
                ]
            },
            "Uncorrected (Fatal)",
        ),
        ({"kernel_log": ["mlx5_core 0000:17:00.0 ib0: Link down"]}, "Link down"),
        ({"kernel_log": ["Out of memory: Killed process 4711 (python)"]}, "Out of memory"),
        ({"nvml": "NVML did not answer within 3 s: the driver hangs"}, "the driver hangs"),
        (
            {"nccl_warnings": ["gpu001:1:2 [0] x.cc:5 NCCL WARN Call to ibv_modify_qp failed"]},
            "Call to ibv_modify_qp failed",
        ),
    ],
)
def test_what_tells_is_reported(seen, clue):
    [found] = clues_of(node(**seen))
    assert clue in found


def test_a_counter_that_stands_out_is_reported_with_how_many_more_there_are():
    rises = [
        Rise("gpu001", "mlx5_0 port 1 symbol_error", 60, 10, 2),
        Rise("gpu001", "mlx5_1 port 1 symbol_error", 50, 10, 2),
    ]
    [clue] = clues_of(
        node(counters={"mlx5_0 port 1 symbol_error": 60, "eth0 rx_bytes": 10**9}), rises
    )
    assert (
        clue
        == "mlx5_0 port 1 symbol_error rose by 60, normal are up to 10 and 2 on its peers, and 1"
        " more such counters"
    )


@pytest.mark.parametrize(
    "seen",
    [
        {"nvlink": {"GPU 1 link 5 CRC errors": 7}},
        {"counters": {"mlx5_0 port 1 packet_seq_err": 60}},
        {}, {"counters": {"eth0 rx_bytes": 5000, "eth0 rx_dropped": 3}},
        {"nvlink": {"GPU 0 link 3 data sent (KiB)": 900}}, {"nvml": "nvmlInit answered 9"},
        {"kernel_log": ["pcieport 0000:80:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer"]},
        {"kernel_log": ["pcieport 0000:80:03.0: AER: Corrected error message received from 0000:83:00.0"]},
        {"kernel_log": ["NVRM: Xid (PCI:0000:c4:00): 45, pid=220714, name=python3, Ch 00000001"]},
        {"kernel_log": None}, {"kernel_log": ["audit: type=1400 apparmor"]},
        {"counters": {"eth0 rx_errors": -4}},
        {"kernel_log": 7, "nvlink": ["x"], "nccl_warnings": {}},
    ],
)  # fmt: skip
def test_what_tells_nothing_is_left_out(seen):
    assert clues_of(node(**seen)) == []


def test_the_main_threads_place_is_read_from_a_stack():
    assert where_of(STACK) == "all_reduce (distributed_c10d.py:3252)"
    assert where_of("") is None
    assert where_of(None) is None


def test_a_suspect_gets_what_was_seen_on_its_own_node_and_its_own_stack():
    suspect = Suspect("gpu001", 1, None, "all_reduce", "never entered collective 7", "look")
    other = Suspect("gpu002", 2, None, "all_reduce", "waits", "look")
    seen = clues_of(node(kernel_log=["NVRM: Xid (PCI:0000:3b:00): 79"]))
    first, second = with_likely([suspect, other], {"gpu001": seen}, {1: where_of(STACK), 2: None})
    assert first.why.startswith("never entered collective 7; likely: its kernel log says ")
    assert "it is in all_reduce" in first.why
    assert second.why == "waits"


def test_when_the_way_is_suspected_the_node_of_each_clue_is_named():
    suspect, rises = (
        Suspect(None, None, None, "all_reduce", "none left it", "look"),
        [Rise("gpu001", "ib0 symbol_error", 90, 10, 0)],
    )
    [way] = with_likely([suspect], {"gpu001": clues_of(node(), rises), "gpu002": []}, {})
    assert (
        way.why
        == "none left it; likely: gpu001: ib0 symbol_error rose by 90, normal are up to 10 and none"
        " on its peers"
    )


def test_the_verdict_of_a_stall_says_what_is_likely_whatever_the_node_says():
    evidence = {
        "kernel_log": ["NVRM: Xid (PCI:0000:3b:00): 31, \x1b[31mred"],
        "counters": {},
        "nvlink": {},
        "nvml": None,
    }
    result = stalled(evidence, STACK)
    assert list(check_schema(result, "smoke-1")) == []
    assert (
        "gpu001: its kernel log says 'NVRM: Xid (PCI:0000:3b:00): 31, \\x1b[31mred'"
        in result["suspects"][0]["why"]
    )
