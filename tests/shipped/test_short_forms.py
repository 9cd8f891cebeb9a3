"""`-o evidence` of diagnose and inspect: valid, small, without secrets, primary apart from what
follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_diagnosis import diagnose

from unhang import cli
from unhang.core.schemas.check import check_schema
from unhang.core.verdict.short_evidence import MOST_BYTES
from unhang.jobs.inspect.bundle import bundle_texts

FIXTURES = Path(__file__).parents[1] / "fixtures"
LOGS = sorted(FIXTURES.glob("diagnose/*/*.log"))
LOOKS = sorted((FIXTURES / "inspect" / "evidence").glob("*.json"))
TOKEN = "hf_" + "Qw8Zr5Tp2Lk9Vx4Nc7Bm1Sd6Fg3Hj0YtEe"


def evidence(capsys, *arguments: str) -> dict:
    cli.main([*arguments, "-o", "evidence"])
    text = capsys.readouterr().out
    assert len(text.encode()) <= MOST_BYTES
    answer = json.loads(text)
    assert [str(fault) for fault in check_schema(answer, "evidence-short-1")] == []
    return answer


def test_every_recorded_log_and_look_has_a_valid_short_form(capsys):
    assert len(LOGS) > 100 and len(LOOKS) > 40
    for log in LOGS[::3]:
        answer = evidence(capsys, "diagnose", str(log)) if diagnose([str(log)])["next"] else None
        assert answer is None or answer["read"][0]["what"] == str(log)
    for look in LOOKS[::3]:
        assert evidence(capsys, "inspect", "--evidence", str(look))["read"]


def test_what_came_first_stands_apart_from_what_follows(capsys):
    answer = evidence(
        capsys, "diagnose", str(FIXTURES / "diagnose" / "slow_rank_or_io" / "nfs.log")
    )
    assert [(one["file"].rsplit("/", 1)[1], one["line"]) for one in answer["primary"]] == [
        ("nfs.log", 1), ("nfs.log", 2),
    ]  # fmt: skip
    assert [one["line"] for one in answer["consequences"]] == [3]
    assert (answer["causes"][0]["cause"], answer["causes"][0]["certainty"]) == (
        "slow_rank_or_io", "likely",
    )  # fmt: skip
    assert [one["what"] for one in answer["not_read"]] == ["stacks", "a flight recorder's dump"]


def test_a_look_names_the_rank_first_and_the_waiting_ones_as_consequence(capsys):
    look = FIXTURES / "inspect" / "evidence" / "loader-RAS-and-stacks.json"
    answer = evidence(capsys, "inspect", "--evidence", str(look))
    assert (answer["by"], answer["primary"][0]["rank"], answer["causes"][0]["certainty"]) == (
        "inspect", 1, "sure",
    )  # fmt: skip
    assert answer["consequences"][0]["text"].startswith("ranks 0: collective in ")
    assert answer["next"]["command"].startswith("py-spy dump --locals --pid ")


def test_the_bundle_has_it_and_a_diagnosis_of_the_bundle_keeps_what_the_look_saw(tmp_path, capsys):
    look = FIXTURES / "inspect" / "evidence" / "killed-RAS-and-stacks.json"
    bundle = tmp_path / "hang.tar.gz"
    cli.main(["inspect", "--evidence", str(look), "--out", str(bundle)])
    capsys.readouterr()
    kept = json.loads(bundle_texts(bundle)["short.json"])
    assert [str(fault) for fault in check_schema(kept, "evidence-short-1")] == []
    answer = evidence(capsys, "diagnose", str(bundle))
    assert kept["primary"][0] == answer["primary"][0]
    assert {one["kind"] for one in answer["read"]} >= {"look at a node", "log"}


@pytest.mark.parametrize("more", [[], ["--redact"]])
def test_no_secret_is_in_it_however_long_its_line(tmp_path, capsys, more):
    log = tmp_path / "a.log"
    for length in (0, 30, 90, 170, 230, 490):
        said = "y " * length
        log.write_text(
            f"RuntimeError: CUDA out of memory. {said}{TOKEN} end\nlast {said}{TOKEN} z\n" * 40
        )
        answer = json.dumps(evidence(capsys, "diagnose", str(log), *more))
        assert [at for at in range(len(TOKEN) - 9) if TOKEN[at : at + 10] in answer] == []


def test_names_that_fill_the_screen_leave_room_for_the_verdict(tmp_path, capsys):
    log = tmp_path / ("n" * 200 + ".log")
    log.write_text("".join(
        f"h{'o' * 200}{number}:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.{number % 250}<0>\n"
        for number in range(3000)
    ))  # fmt: skip
    answer = evidence(capsys, "diagnose", str(log))
    assert answer["verdict"]["word"] == "no_end" and answer["cut"]
