"""A text without a line of a known program gets one fixed page: what to bring instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from unhang.cli import main
from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.rendering import render_table

POST = (
    "[Question] Training stands since the update\n\nWe use two machines with four cards each. It"
    " worked last week. What can we do?\n"
)
ARTICLE = (
    "How to make it run\n\nMany people should try this:\n\nexport NCCL_P2P_DISABLE=1\nexport"
    " NCCL_TIMEOUT=1200\n"
)
PROSE = Path(__file__).parents[4] / "fixtures" / "diagnose_prose.yml"
LOG = "c1:9:9 [0] NCCL INFO Bootstrap : Using eth0:198.51.100.4<0>\n"


@pytest.mark.parametrize("text", [POST, ARTICLE])
def test_text_without_a_log_gets_a_page_of_twelve_lines_at_most(text):
    answer = diagnose_text(text)
    page = render_table(answer, 100)
    assert answer["outcome"]["word"] == "nothing" and answer["causes"] == []
    assert len(page.splitlines()) <= 12 and "unhang inspect" in page
    assert [f"{number}. " in page for number in (1, 2, 3)] == [True] * 3
    assert "WHAT HAPPENED" not in page


def test_page_is_the_same_for_every_text_and_names_lint_only_where_settings_stand():
    post, article = (diagnose_text(text)["collect_next"] for text in (POST, ARTICLE))
    assert post == article[:-1] and "unhang lint" in article[-1]


@pytest.mark.parametrize(
    "text", [LOG, f"{POST[45:]}{LOG * 3}", "[rank0] step 7 done\n[rank1] step 9 done\n"]
)
def test_one_line_of_a_program_or_steps_of_ranks_make_a_log(text):
    assert diagnose_text(text)["outcome"]["word"] != "nothing"


@pytest.mark.parametrize("row", yaml.safe_load(PROSE.read_text()), ids=lambda row: row["text"][:20])
def test_prose_gets_what_is_known_of_what_it_names_and_a_log_below_a_line_its_cause(
    row, tmp_path, capsys
):
    (tmp_path / "post.txt").write_text(row["text"])
    code, shown = main(["diagnose", str(tmp_path / "post.txt")]), capsys.readouterr().out
    causes = diagnose_text(row["text"])["causes"]
    assert [one["cause"] for one in causes if one["severity"] != "info"] == row.get("causes", [])
    for name in row.get("names", ()):
        assert code == 2 and "no log is in it" in shown and len(shown.splitlines()) <= 12
        assert f"\n{name}: " in shown


def test_what_a_person_names_beside_a_log_without_a_cause_is_looked_up(tmp_path, capsys):
    log = "2026-11-02 10:00:07 ERROR trainer: RuntimeError: the loss of step 7 is nan\n"
    (tmp_path / "job.log").write_text(f"# dmesg had Xid 63, driver 545.23.08, one RTX 3090.\n{log}")
    code, shown = main(["diagnose", str(tmp_path)]), capsys.readouterr().out
    named = [line.split(": ")[1] for line in shown.splitlines() if "named here" in line]
    assert code == 3 and named == ["Xid 63", "driver 545.23.08"]


RECORDS = {
    "json": '{{"ts": {at}, "rank": {rank}, "step": {step}, "loss": {at}}}',
    "json with a message": '{{"time": "10:00:{at:02}", "msg": "beat", "rank": {rank}, "step": {step}}}',
    "csv": "{at}, {rank}, {step}",
    "board": "| {rank} | {step} | running |",
    "words": "10:00:{at:02} heartbeat from worker {rank}: items {step} ok",
    "hosts": "host gpu{rank:02} seq={step} queue={at}",
    "paragraphs": "rank: {rank}\nphase: train\nstep: {step}\n",
}
HEADS = {"csv": "ts, rank, step\n", "board": "| rank | step | state |\n"}


@pytest.mark.parametrize("form", RECORDS)
@pytest.mark.parametrize("stuck", [None, 5])
def test_records_of_any_form_show_who_is_behind_and_accuse_nobody_in_health(form, stuck):
    lines = [
        RECORDS[form].format(at=at, rank=rank, step=min(at, 9) if rank == stuck else at)
        for at in range(30) for rank in range(8)
    ]  # fmt: skip
    outcome = diagnose_text(HEADS.get(form, "") + "\n".join(lines))["outcome"]
    if stuck is None:
        steps = "step" in HEADS.get(form, RECORDS[form].replace("{step}", ""))
        said = "step of all 8 ranks advances to 29" if steps else "no log is in it"
        assert said in outcome["why"] and outcome["word"] != "healthy"
    else:
        assert re.search(r"(?:rank|worker|host gpu0?)\W?5\b.* 9, the others.* 29", outcome["why"])


@pytest.mark.parametrize(
    "line",
    [
        "worker={rank} done={quick}",  # each at its own speed
        "rank={rank} step={at} memory={less}",  # smaller from the beginning
        "rank={rank} epoch={epoch} batch={batch}",  # begins again
        "host=gpu{rank} replays={some} up={at}",  # more than the others
    ],
)
def test_records_that_differ_in_a_job_that_runs_accuse_nobody(line):
    text = "".join(
        line.format(
            rank=rank, at=at, quick=at * (rank + 3), less=at + 100 * (rank != 5),
            epoch=at // 10, batch=at % 10, some=at // 3 * (rank == 5),
        ) + "\n"
        for at in range(30) for rank in range(8)
    )  # fmt: skip
    outcome = diagnose_text(text)["outcome"]
    assert outcome["word"] == "nothing" or "nobody is behind" in outcome["why"]


REPEATED = "[{at}] A2A DISPATCH: rank {rank} waits for src {src}: expecting {seq} got {got}\n"
COUNTS = "shard {at}: worker {rank} has sent {got}\n"


def repeated(line=REPEATED, **given):
    return "".join(
        line.format(**{"at": at, "rank": rank, "src": 2, "seq": 41 + rank, "got": 40 + rank} | {
            name: of(rank, at) for name, of in given.items()
        })
        for at in range(3) for rank in range(4)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (repeated(), "src 2: 4 ranks name it again and again, its got 1 behind expecting"),
        (repeated(seq=lambda rank, at: 50 + at), None),  # the counts go on
        (repeated(src=lambda rank, at: rank), None),  # each names another
        (repeated(COUNTS, at=lambda *_: 1, got=lambda rank, at: 9 - (rank == 2)),
         "worker 2: its sent is at 8, the others' at 9"),
        (repeated(COUNTS, at=lambda *_: 1, got=lambda rank, at: 9 + rank), None),
    ],
)  # fmt: skip
def test_counts_of_an_unknown_program_that_stand_still_are_compared(text, shown):
    outcome = diagnose_text(text)["outcome"]
    assert outcome["why"].endswith(shown) if shown else outcome["word"] == "nothing"
