"""Documents that come as the logs of pods: whole by `--tail=-1`; the piece that `--tail=1` prints
is named by its pod, with the command that fetches all of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from container_logs import LONGEST_RECORD, printed, with_prefix, written

from unhang.audit.ways.arrivals import write_arrivals
from unhang.audit.ways.documents import read_arrival, split_documents
from unhang.audit.ways.files import arrivals_of, limits

HOME = Path(__file__).resolve().parents[5]
FACTS = json.loads((HOME / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())
NODES = ("gpu001", "gpu002", "gpu003")


def document_of(node, pad=0):
    """One line, as the collector prints it. pad: letters more in a value."""
    facts = json.loads(json.dumps(FACTS))
    facts["sections"]["node"]["hostname"] = node
    facts["sections"]["kernel"]["cmdline"] = "x" * pad
    return json.dumps(facts, separators=(",", ":"))


def pod_of(node):
    return f"unhang-collector-{node[-1]}k2p"


@pytest.fixture
def arrive(tmp_path, monkeypatch):
    def read(text):
        run = tmp_path / "run"
        (run / "nodes").mkdir(parents=True)
        log = tmp_path / "nodes.log"
        log.write_text(text)
        arrived = write_arrivals(run, None, (("", one) for one in arrivals_of(str(log), limits())))
        files = sorted((run / "nodes").glob("*.json"))
        nodes = [json.loads(path.read_text()) for path in files]
        return {one["host"]: one for one in nodes}, arrived

    return read


def logs(tail, pad=0):
    return with_prefix(
        (pod_of(node), printed(written(document_of(node, pad) + "\n"), tail)) for node in NODES
    )


def test_a_document_of_eight_gpus_is_longer_than_a_record():
    log = written(document_of("gpu001") + "\n")
    assert log.count(" stdout P ") >= 3 and log.count(" stdout F ") == 1
    assert max(len(line.split(" ", 3)[3]) for line in log.splitlines()) == LONGEST_RECORD
    assert printed(log, -1) == document_of("gpu001") + "\n"


def test_whole_logs_are_the_nodes(arrive):
    nodes, arrived = arrive(logs(-1))
    assert {host: one["status"] for host, one in nodes.items()} == dict.fromkeys(NODES, "ok")
    assert arrived.faults == arrived.lines == []


@pytest.mark.parametrize("pad", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610])
def test_the_last_record_alone_is_a_piece_named_by_its_pod(arrive, pad):
    """pad: so that the piece begins anywhere, also at a brace or within a text."""
    nodes, arrived = arrive(logs(1, pad))
    assert {host: one["status"] for host, one in nodes.items()} == {
        pod_of(node): "invalid" for node in NODES
    }
    assert arrived.faults == []
    for host, one in nodes.items():
        assert "bytes of a document, its beginning is missing" in one["message"]
        assert f"kubectl logs -n NAMESPACE {host} -c collector --tail=-1" in one["message"]


def test_a_piece_that_begins_at_a_brace_is_one_piece():
    whole = document_of("gpu001")
    braces = [place for place, sign in enumerate(whole) if sign == "{" and place > 40_000]
    for place in braces[:: max(len(braces) // 10, 1)]:
        text = with_prefix([(pod_of("gpu001"), whole[place:])])
        (only,) = list(_read(text))
        assert (only.stem, "its beginning is missing" in only.fault) == (pod_of("gpu001"), True)


def _read(text):
    for piece in split_documents(io.BytesIO(text.encode())):
        yield read_arrival("standard input", "", piece)


def test_a_piece_and_whole_documents_in_one_stream(arrive):
    cut = printed(written(document_of("gpu001") + "\n"), 1)
    text = with_prefix([(pod_of("gpu001"), cut), (pod_of("gpu002"), document_of("gpu002"))])
    nodes, _ = arrive(text)
    assert {host: one["status"] for host, one in nodes.items()} == {
        pod_of("gpu001"): "invalid",
        "gpu002": "ok",
    }


def test_the_page_fetches_whole_logs():
    page = (HOME / "docs" / "kubernetes.md").read_text()
    fetching = [line for line in page.splitlines() if " logs " in line and "-c collector" in line]
    assert fetching and all("--tail=-1" in line for line in fetching)
