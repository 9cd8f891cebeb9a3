"""A fault that somebody looked for and did not find, or asks about, is no evidence of it; a program's "no" is."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

HANGS = "The job hangs in all_reduce after two hours.\n"
NOT_THERE = [
    'dmesg is clean: no "GPU has fallen off the bus", no Xid.',
    '- kernel log has no Xid 79 on any node, no "fallen off the bus"',
    'dmesg 里没有 Xid 79，也没有 "GPU has fallen off the bus"，nvidia-smi 正常。',
    'We looked for "CUDA out of memory" in all logs and found nothing.',
    'Is this a case of "GPU has fallen off the bus"? How would I see that?',
    "2026-01-02 10:21:00 没有出现显存不足（CUDA out of memory）。",
]
OOM = "CUDA out of memory. Tried to allocate 2.00 GiB"
THERE = {
    f"无法连接: {OOM}": "oom",
    f"训练无法继续 RuntimeError: {OOM}": "oom",
    f"未知错误 {OOM}": "oom",
    f"2026-01-02 10:00:00,123 - ERROR - 未捕获的异常: {OOM}": "oom",
    f"没有足够的显存（{OOM}）": "oom",
    f"rank 3: no heartbeat, {OOM}": "oom",
    f"It crashed with no warning, {OOM}": "oom",
    f"There is no output but {OOM}": "oom",
    f"Without cache, {OOM}": "oom",
    'dmesg says "GPU has fallen off the bus" on one node.': "xid_hardware",
    'I looked for a cause and found "CUDA out of memory" in the log of rank 3.': "oom",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.": "xid_hardware",
    "It no longer trains: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB": "oom",
}


@pytest.mark.parametrize("line", NOT_THERE)
def test_what_is_not_there_is_no_cause(line):
    assert [one["cause"] for one in diagnose_text(HANGS + line)["causes"] if one["severity"] != "info"] == []


@pytest.mark.parametrize(("line", "cause"), THERE.items())
def test_what_is_there_is(line, cause):
    assert diagnose_text(HANGS + line)["causes"][0]["cause"] == cause


def test_a_good_end_that_names_what_did_not_happen_is_a_good_end():
    text = "step 10 loss 2.0\nstep 20 loss 1.9\nTraining finished, no CUDA out of memory and no NCCL timeout this time.\n"
    assert diagnose_text(text)["outcome"]["word"] == "healthy"
