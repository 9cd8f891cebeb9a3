"""Facts that stand in tables or prose decide: a speed that falls, stacks below the names of ranks,
the work that each rank queued, a proxy, no firewall."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

LATE = (
    "[rank{rank}]:[E908 14:02:10.1 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size},"
    " NumelOut={size}, Timeout(ms)=1800000) ran for 1800031 milliseconds before timing out.\n"
)


STATE = (
    "[rank{rank}]:[E908 14:02:10.2 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) Rank"
    " {rank}]  failure detected by watchdog at work sequence id: 812 PG status: last enqueued work:"
    " {queued}, last completed work: 811\n"
)


def loud(text):
    return [
        (cause["cause"], cause["certainty"])
        for cause in diagnose_text(text)["causes"]
        if cause["severity"] != "info"
    ]


def asked(text, *words):
    return [any(word in one for one in diagnose_text(text)["collect_next"]) for word in words]


def test_job_that_stops_at_another_batch_each_time_made_progress():
    assert (
        diagnose_text("4 GPUs, it hangs at another batch each time, with one GPU it works.\n")[
            "causes"
        ]
        == []
    )


def test_rank_that_waits_in_the_collective_too_is_no_longer_saving():
    saves = (
        "0: Epoch 0, global step 2208: 'val_wer' reached 0.71220 (best 0.71220), saving model to"
        " '/w/a.ckpt' as top 5\n"
    )
    waits = [LATE.format(rank=rank, seq=11209, op="ALLREDUCE", size=1) for rank in (0, 1, 2)]
    assert "watchdog_timeout_too_short" not in dict(loud(saves + waits[0] + waits[2]))
    assert dict(loud(saves + waits[1] + waits[2]))["watchdog_timeout_too_short"] == "likely"


def test_warning_of_a_fork_chooses_the_start_method_only_where_the_job_hangs():
    warned = (
        "DeprecationWarning: This process (pid=751) is multi-threaded, use of fork() may lead to"
        " deadlocks in the child.\n"
    )
    assert asked(f"The test never ends.\n{warned}", "multiprocessing_context='spawn'") == [True]
    assert loud(warned) == []


@pytest.mark.parametrize(
    ("op", "size"), [("RECV", "524288"), ("SEND", "524288"), ("COALESCED", "18446744073709551615")]
)
def test_numbers_of_messages_between_stages_differ_in_every_pipeline(op, size):
    assert (
        loud(
            LATE.format(rank=3, seq=331, op=op, size=size)
            + LATE.format(rank=6, seq=329, op=op, size=size)
        )
        == []
    )
    assert (
        loud(
            LATE.format(rank=3, seq=331, op="ALLREDUCE", size=9)
            + LATE.format(rank=6, seq=329, op="ALLREDUCE", size=9)
        )[0][0]
        == "rank_desync_app"
    )


def test_rank_whose_watchdog_reports_later_work_has_come_to_the_collective():
    alone = LATE.format(rank=0, seq=812, op="COALESCED", size=3276800)
    found = diagnose_text(
        alone + STATE.format(rank=1, queued=812) + STATE.format(rank=3, queued=812)
    )
    assert "ranks 0-1, 3" in found["outcome"]["why"] and "rank 2 came" in found["outcome"]["why"]


def test_advice_is_that_of_the_kind_of_job():
    def person(text):
        return next(
            cause["remedy"]["person"]
            for cause in diagnose_text(text)["causes"]
            if cause["cause"] == "rank_desync_app"
        )

    waits = LATE.format(rank=3, seq=8, op="ALLREDUCE", size=9) + LATE.format(
        rank=6, seq=9, op="ALLREDUCE", size=9
    )
    assert (
        "pad shards" in person(waits)
        and "in a server" not in person(waits)
        and "in a pipeline" not in person(waits)
    )
    serves = f"INFO:     Application startup complete.\n{waits}"
    assert "pad shards" not in person(serves) and "in a server" in person(serves)
