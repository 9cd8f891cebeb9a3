"""Records of users' own programs: forms in which times, states, rates and ends are read, each broken
and in health."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from job_diagnosis import diagnose

from unhang.jobs.diagnose.diagnosing import diagnose_text

STATES = ("load", "forward", "backward")
BAD = 4


def rounds(fault, last=15):
    """Fields of six ranks, each ten seconds. The fault is that of rank 4 from the sixth round on."""
    for at in range(last):
        for rank in range(6):
            late, own = max(0, at - 5), rank == BAD
            if fault == "silent" and own and late:
                continue
            step = 100 * at + (rank + at) % 2
            stands = fault in ("silent", "elsewhere") and late
            yield {
                "at": 1_790_000_000 + 10 * at + rank / 10,
                "rank": rank,
                "step": 501 if stands else step - 60 * late * (own and fault == "behind"),
                "state": STATES[0 if own else 1] if stands else STATES[(rank + at) % 3],
                "ms": 830.0 if own and fault == "slow" and late else 400.0 + 7 * rank + at,
            }


def iso(row):
    return datetime.fromtimestamp(row["at"], UTC).isoformat()


def lines(form, rows):
    if form == "json":
        keys = {"at": "ts", "ms": "step_ms"}
        return [json.dumps({keys.get(one, one): row[one] for one in row} | {"ts": iso(row)})
                for row in rows]  # fmt: skip
    if form == "epoch":
        return [json.dumps({"time": row["at"], "worker": row["rank"], "info": {
            "step": row["step"], "step_time": row["ms"] / 1000}, "phase": row["state"],
            "loss": None if row["step"] % 3 else 1}) for row in rows]  # fmt: skip
    if form == "csv":
        head = "when,rank,host,step,state,step_ms"
        return [head, *(f"{iso(row)},{row['rank']},h{row['rank'] // 2},{row['step']},{row['state']},"
                        f"{row['ms']}" for row in rows)]  # fmt: skip
    if form == "columns":
        table = {}
        for row in rows:
            table.setdefault(row["step"] // 100, []).append(f"{row['step']},{row['ms']}")
        return [",".join(f"rank{one}_step,rank{one}_ms" for one in range(6)),
                *(",".join(row) for row in table.values())]  # fmt: skip
    return [f"time={iso(row)} msg=\"some words\" rank={row['rank']} iter={row['step']}"
            f" iters_per_s={1000 / row['ms']:.2f} phase={row['state']}"
            + (f"\ntime={iso(row)} msg=loss rank=0 loss=2.{row['step']}" * (row["rank"] == 0))
            for row in rows]  # fmt: skip


@pytest.mark.parametrize("form", ["json", "epoch", "csv", "logfmt", "columns"])
@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("silent", "is silent, its last sign is "),
        ("elsewhere", " is load, the others' forward"),
        ("behind", "falls behind: its "),
        ("slow", ", no other's "),
        (None, "nobody is behind"),
    ],
)
def test_rank_that_departs_from_its_past_and_from_the_others_is_named(form, fault, shown):
    if form == "columns" and fault in ("silent", "elsewhere", "behind"):
        pytest.skip("the columns have no times or states")
    rows = [*rounds(fault)]
    outcome = diagnose_text("\n".join(lines(form, rows)))["outcome"]
    assert shown in outcome["why"]
    assert outcome["word"] == ("no_end" if fault else "healthy")
    assert (f"rank {BAD}" in outcome["why"] or f"worker {BAD}" in outcome["why"]) == bool(fault)


@pytest.mark.parametrize("form", ["json", "epoch", "csv", "logfmt"])
@pytest.mark.parametrize(
    "keep",
    [
        lambda row: row["rank"] != BAD or row["at"] > 1_790_000_050,  # began later
        lambda row: row["rank"] != BAD or row["step"] // 100 % 3 == 0,  # writes more seldom
        lambda row: row["rank"] == 0 or row["step"] // 100 % 4 == 0,  # one writes more
    ],
)
def test_ranks_that_begin_later_or_write_at_other_times_are_not_accused(form, keep):
    rows = [row for row in rounds(None, 25) if keep(row)]
    assert " show " not in diagnose_text("\n".join(lines(form, rows)))["outcome"]["why"]


@pytest.mark.parametrize(
    ("factor", "since", "named"),
    [(1.0, 5, False), (1.05, 5, False), (1.5, 5, True), (1.5, 0, False)],
)
def test_a_time_is_long_by_its_past_and_how_far_the_others_are_apart(factor, since, named):
    rows = [row | {"ms": row["ms"] * (factor if row["rank"] == BAD and row["step"] >= 100 * since
                                      else 1)} for row in rounds(None)]  # fmt: skip
    assert ("rank 4: its step_ms" in why(rows)) == named


@pytest.mark.parametrize(("missed", "named"), [(1, False), (2, False), (3, True)])
def test_silence_is_as_long_as_three_records_of_this_log(missed, named):
    rows = [row for row in rounds(None) if row["rank"] != BAD or row["step"] // 100 < 15 - missed]
    assert ("is silent" in why(rows)) == named


def why(rows):
    return diagnose_text("\n".join(lines("json", rows)))["outcome"]["why"]


def dump(odd=True, stands_s=900, own_step=71):
    return "".join(
        f"[rank {rank}]\nhostname: h{rank // 2}\nstep: {own_step if rank == BAD else 72}\nstate:"
        f" {'read a batch' if odd and rank == BAD else 'wait in reduce'}\nseconds_in_state:"
        f" {stands_s + rank}\n\n"
        for rank in range(6)
    )


def metrics(silent_s=700):
    return "".join(
        f'{name}{{rank="{rank}",node="h{rank // 2}"}} {value - silent_s * (rank == BAD and beat)}\n'
        for name, value, beat in (("steps_total", 72, 0), ("last_beat_seconds", 1_790_000_000.5, 1))
        for rank in range(6)
    )


def board(*steps, age=0.4):
    return "\n".join(
        " rank   state     step   last beat\n"
        + "\n".join(
            f"  {rank}     RUN     {step - rank % 2}    {age if rank == BAD else 0.3} s ago"
            for rank in range(6)
        )
        for step in steps
    )


ENDED = (
    '\n{"time": "2026-09-21T14:40:00Z", "rank": 0, "step": 1300, "phase": "finished", "exit": %d}'
)


@pytest.mark.parametrize(
    ("text", "shown", "word"),
    [
        (dump(), "rank 4 (host h2): its state is read a batch, the others' wait in reduce", "no_end"),
        (dump(stands_s=1), None, "nothing"),  # a moment of a job that runs
        (dump(odd=False), None, "nothing"),  # one step behind, at one moment
        (dump(odd=False, own_step=12), "rank 4 (host h2): its step is at 12", "no_end"),
        (metrics(), "rank 4 (host h2): it is silent, its last sign is 700 s before", "no_end"),
        (metrics(silent_s=3), None, "nothing"),
        (board(200, 297, 395), "the step of all 6 ranks advances to 395", "healthy"),
        (board(200, 297, 297), None, "nothing"),
        (board(200, 297, 395, age=400.0), "rank 4: it is silent", "no_end"),
        ("\n".join(lines("json", rounds(None))) + ENDED % 0, "reports the end", "healthy"),
        ("\n".join(lines("json", rounds(None))) + ENDED % 1, None, "nothing"),
    ],
)  # fmt: skip
def test_one_moment_a_board_and_an_end(text, shown, word):
    outcome = diagnose_text(text)["outcome"]
    assert (shown in outcome["why"]) if shown else (" show " not in outcome["why"])
    assert outcome["word"] == word


def test_rank_that_prints_to_the_end_did_not_stop_first():
    early, late = "[rank1] step 3\n[rank1] step 4\n", "[rank0] step 8\n[rank0] step 9\n"
    assert "stopped first" not in diagnose_text(late + early)["outcome"]["why"]
    assert "rank 1 stopped first" in diagnose_text(early + late)["outcome"]["why"]


def test_records_are_not_the_answer_for_files_that_they_say_nothing_of(tmp_path):
    (tmp_path / "beats.jsonl").write_text("\n".join(lines("json", rounds(None))))
    assert "; looked at: beats.jsonl" in (alone := diagnose([str(tmp_path)])["outcome"])["why"]
    (tmp_path / "rank0.log").write_text("[rank0] waiting for the others\n")
    both = diagnose([str(tmp_path)])["outcome"]
    assert (alone["word"], both["word"]) == ("healthy", "no_end") and "rank0.log" in both["why"]
