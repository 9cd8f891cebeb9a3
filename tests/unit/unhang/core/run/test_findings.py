"""findings.json as reports read it: equal parts of findings are one object, and each text is masked
wherever it stands."""

from __future__ import annotations

import json
import tracemalloc

import fleets
import pytest

from unhang.core.run.findings import Unreadable, read_findings
from unhang.core.secrets_in_text import masked_document

HF = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz12345678"  # made up


def of(host, found="545.23.08"):
    """A finding whose texts are long, as those of the catalogue are."""
    remedy = {
        "person": f"look for {host}"
        if host == "gpu007"
        else "look for a memory module that the BIOS has switched off; " * 10
    }
    return fleets.finding(
        "driver-is-old",
        host,
        "error",
        "The driver is old " * 20,
        "another " * 40,
        found,
        remedy=remedy,
    )


@pytest.fixture
def folder(tmp_path):
    """(findings) -> a run folder with them."""

    def make(findings):
        (tmp_path / "findings.json").write_text(
            json.dumps(fleets.document(findings, {"ok": len(findings)}))
        )
        return tmp_path

    return make


def test_it_is_the_document_with_its_secrets_masked(folder):
    findings = [
        of("gpu001"),
        of("gpu002", f"token {HF}"),
        {**of("gpu007"), "where": {"password": "hunter2hunter2"}},
        of("gpu003"),
    ]
    run = folder(findings)
    read = read_findings(run)
    assert read == masked_document(json.loads((run / "findings.json").read_text()))
    assert [list(one) for one in read["findings"]] == [list(one) for one in findings]
    assert HF not in json.dumps(read)
    assert "hunter2" not in json.dumps(read)


def test_findings_of_many_nodes_take_the_memory_of_what_differs(folder):
    """Without sharing a finding takes as much as its text in the file, and more."""
    run = folder([of(f"gpu{number:05d}") for number in range(2000)])
    size = (run / "findings.json").stat().st_size
    read_findings(run)  # what the first reading of all compiles and keeps is not of these findings
    tracemalloc.start()
    try:
        read = read_findings(run)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < size / 2
    first, last = read["findings"][0], read["findings"][-1]
    assert first["host"] != last["host"]
    assert first["remedy"] is last["remedy"]


@pytest.mark.parametrize("findings", ['"x"', "[1]", "[null]", "[[]]", "{}", '[{"rule": 1}]'])
def test_findings_of_another_type_are_refused(tmp_path, findings):
    (tmp_path / "findings.json").write_text(
        f'{{"schema": "unhang/findings/1", "causes": [], "findings": {findings}}}'
    )
    with pytest.raises(Unreadable, match="is not what the judge writes"):
        read_findings(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": "unhang/findings/1", "causes": [], "findings": [{"a": }]}',
        '{"findings": [{"a": 1}',
        '{"a": [' * 3000,
        "\xff",
    ],
)
def test_what_is_no_json_is_refused(tmp_path, text):
    (tmp_path / "findings.json").write_text(text, encoding="latin-1")
    with pytest.raises(Unreadable, match="is not JSON"):
        read_findings(tmp_path)
