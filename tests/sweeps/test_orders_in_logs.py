"""Every line of recorded logs ends with an order to an assistant: the words of unhang in the answer
of `unhang mcp` are free of it, whatever was found."""

from __future__ import annotations

from pathlib import Path

import pytest
from marked_texts import ORDER, outside_of_marks, texts

from unhang.cli import main
from unhang.commands.assistant_answers import OWN, answer_of
from unhang.commands.assistant_tools import Request

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
FOLDERS = ("diagnose", "diagnose_real_jobs", "diagnose_batches")
MOST_BYTES, EVERY = 200_000, 4  # of the many logs each fourth; of 1,499 in all none failed


@pytest.mark.parametrize("name", FOLDERS)
def test_no_line_of_a_log_reaches_the_words_of_unhang(name, tmp_path, capsys):
    logs = sorted(path for path in (FIXTURES / name).rglob("*") if path.is_file())
    logs = logs if name == "diagnose" else logs[::EVERY]
    words, leaked = 0, {}
    for number, log in enumerate(logs):
        if log.stat().st_size > MOST_BYTES:
            continue
        path = tmp_path / f"{number}-{log.name}"
        lines = log.read_text(errors="replace").splitlines()
        path.write_text("\n".join(f"{line} {ORDER}" for line in lines) + "\n")
        code = main(["diagnose", str(path), "-o", "evidence"])
        printed = capsys.readouterr()
        answer, _ = answer_of(Request("diagnose", ()), code, printed.out, printed.err)
        words += len([key for key, _ in texts(answer) if key in OWN])
        if found := [one for one in outside_of_marks(answer) if "IGNORE ALL" in one]:
            leaked[str(log.relative_to(FIXTURES))] = found
    assert leaked == {}
    assert words > 3 * len(logs)
