"""Messages in documents of log collectors are read as a log: JSON in any layout, the journal's,
tables, several messages on a line."""

from __future__ import annotations

import json

import pytest
from job_diagnosis import diagnose

WAITS = [
    f"[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout:"
    f" WorkNCCL(SeqNum={1516 + rank}, OpType=ALLREDUCE, NumelIn=9000, NumelOut=9000,"
    " Timeout(ms)=600000) ran for 600037 milliseconds before timing out."
    for rank in range(2)
]
LINES = [*WAITS, "plain words of the job"]


def rows(key, lines=LINES):
    return [{"stream": "stderr", key: line} for line in lines]


DOCUMENTS = {
    "list-on-one-line": json.dumps(rows("message")),
    "list-indented": json.dumps(rows("log"), indent=2),
    "nested": json.dumps({"result": {"hits": [{"_source": one} for one in rows("message")]}}),
    "journal": "\n".join(json.dumps({"_PID": "7", "MESSAGE": line}) for line in LINES),
    "journal-pretty": "\n".join(
        json.dumps({"_PID": "7", "MESSAGE": line}, indent=1) for line in LINES
    ),
    "journal-bytes": "\n".join(
        json.dumps({"MESSAGE": list(line.encode()), "_PID": "7"}, indent=1) for line in LINES
    ),
    "two-objects-on-a-line": "".join(json.dumps(one) for one in rows("log")),
    "two-messages-in-one": json.dumps([{"log": " ".join(LINES)}]),
    "table": "".join(f"| 2026-11-23 10:00:00 | worker-0 | {line} |\n" for line in LINES),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_messages_of_a_document_are_read(tmp_path, name):
    log = tmp_path / "export.json"
    log.write_text(DOCUMENTS[name] + "\n")
    found = diagnose([str(log)])
    assert [one["seq"] for one in found["facts"]["collectives"]] == [1516, 1517]
    assert "rank_desync_app" in [cause["cause"] for cause in found["causes"][:2]]


def test_line_of_a_message_is_that_of_the_document(tmp_path):
    log = tmp_path / "export.json"
    log.write_text(json.dumps(rows("message"), indent=1))
    first = diagnose([str(log)])["facts"]["collectives"][0]["lines"][0]
    assert "SeqNum=1516" in log.read_text().splitlines()[first["line"] - 1]


@pytest.mark.parametrize(
    "text",
    [
        '[{"message": "Watchdog',
        '{"message": ' + "[" * 2000,
        '[{"message": 3}]',
        "[rank0]: step 1\n",
    ],
)
def test_damaged_or_other_text_is_read_as_lines(tmp_path, text):
    log = tmp_path / "export.json"
    log.write_text(text)
    assert diagnose([str(log)])["inputs"][0]["kind"] == "log"
