"""One machine as several hosts whose ranks train together, by gloo."""

from __future__ import annotations

from smoke_runs import PATIENT, SMALL, smoke


def test_two_hosts_on_this_machine_train_together():
    done = smoke("--as-hosts", 2, "--nproc", 2, *SMALL, *PATIENT, "--phases", "all_reduce,ddp")
    assert done.code == 0
    assert [(row["host"][-2:], row["ranks"]) for row in done.result["hosts"]] == [
        ("-0", [0, 1]),
        ("-1", [2, 3]),
    ]
    assert done.stderr.count("phase ddp\n") == 1


def test_it_is_for_this_machine_alone():
    done = smoke("--as-hosts", 2, "--hosts", "gpu1", local=False)
    assert done.code == 2
    assert "--as-hosts needs --local beside it, not --host" in done.stderr
