"""Documents in a stream are found where they end, whatever stands between them, however the bytes
are cut, and half of one is never taken for a node."""

from __future__ import annotations

import io
import json
import shutil
import subprocess

import pytest

from unhang.audit.ways import documents
from unhang.audit.ways.documents import read_arrival, split_documents


def facts(hostname="gpu001", **node):
    """A small document of unhang collect."""
    sections = {"node": {"probe": {"status": "ok"}, "hostname": hostname, **node}}
    return {
        "schema": "unhang/node-facts/1",
        "collector": {"version": "0.1.0", "collected_at": "2026-11-24T10:00:00Z"},
        "sections": sections,
    }


ODD = facts("gpu009", odd='} { ] [ " \\ \\" ende\\')


@pytest.fixture(params=[1, 2, 3, 7, 64, 1 << 20])
def split(request, monkeypatch):
    """text -> its pieces, read in chunks of different sizes."""
    monkeypatch.setattr(documents, "CHUNK", request.param)
    return lambda text: [piece.decode() for piece in split_documents(io.BytesIO(text.encode()))]


@pytest.mark.parametrize("between", ["", "\n", "\r\n\n  "])
@pytest.mark.parametrize("indent", [None, 2, 0])
def test_documents_end_where_their_brace_closes(split, between, indent):
    texts = [json.dumps(one, indent=indent) for one in (facts("a"), ODD, facts("b"))]
    assert [json.loads(piece) for piece in split(between.join(texts) + between)] == [
        facts("a"),
        ODD,
        facts("b"),
    ]


@pytest.mark.parametrize("between", ["", "\n"])
@pytest.mark.parametrize("indent", [None, 2, 0])
def test_maps_in_a_list_that_begin_a_line_are_values_of_their_document(split, indent, between):
    given = [
        facts(
            name,
            disks=[{"name": "a"}, {"name": "b", "parts": [{}, [{"x": 1}]]}],
            of={"a": {"b": {}}},
        )
        for name in ("a", "b")
    ]
    assert [
        json.loads(piece)
        for piece in split(between.join(json.dumps(one, indent=indent) for one in given))
    ] == given


@pytest.mark.skipif(not shutil.which("jq"), reason="no jq here: apt-get install jq")
@pytest.mark.parametrize("options", [["."], ["-c", "."], ["--tab", "."], ["--indent", "0", "."]])
def test_what_jq_writes_is_read(split, options):
    given = [facts(name, disks=[{"name": "a"}, {"name": "b"}]) for name in ("a", "b")]
    written = subprocess.run(
        ["jq", *options],
        input="\n".join(map(json.dumps, given)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert [json.loads(piece) for piece in split(written)] == given


def test_a_cut_document_ends_where_the_next_begins_a_line(split):
    whole = json.dumps(ODD)
    for cut in (1, 12, len(whole) // 2, len(whole) - 12, len(whole) - 1):
        pieces = split(f"{whole[:cut]}\n{json.dumps(facts('b'))}\n")
        assert json.loads(pieces[-1]) == facts("b"), cut
        assert pieces[0].strip() == whole[:cut]


def test_lines_between_documents_are_pieces_of_their_own(split):
    pieces = split(f'could not start: {{no}} "quote\n{json.dumps(facts("a"))}\nKilled\n')
    assert [json.loads(piece)["schema"] for piece in pieces if piece.startswith('{"schema')] == [
        "unhang/node-facts/1"
    ]
    assert "".join(pieces[:-2]).startswith("could not start")
    assert pieces[-1] == "Killed"


def test_the_mark_that_kubectl_puts_before_a_line_is_no_part_of_the_document(split):
    lines = [
        f"[pod/unhang-collect-{name}/collect] {json.dumps(facts(name))}" for name in ("a", "b")
    ]
    assert [json.loads(piece) for piece in split("\n".join(lines))] == [facts("a"), facts("b")]


def test_no_piece_is_longer_than_an_answer_and_a_chunk(monkeypatch):
    monkeypatch.setattr(documents, "ANSWER_LIMIT_CHARS", 1000)
    monkeypatch.setattr(documents, "CHUNK", 100)
    endless = b'{"schema": "' + b"x" * 50_000 + b"\n" + json.dumps(facts("b")).encode()
    pieces = list(split_documents(io.BytesIO(endless)))
    assert max(map(len, pieces)) <= 1100
    assert json.loads(pieces[-1]) == facts("b")


@pytest.mark.parametrize(
    ("piece", "fault"),
    [
        (b'{"schema": "unhang/node-facts/1"', "not valid JSON"),
        (b'{"schema": "unhang/plan/1"}', "schema unhang/plan/1 is not a document"),
        (
            b'{"schema": "unhang/node-facts/1", "collector": {}, "sections": {"node": {}}}',
            "sections.node.probe has no status",
        ),
        (
            b'{"schema": "unhang/node-facts/1", "collector": NaN, "sections": {}}',
            "NaN is not a number",
        ),
        (b'{"schema": "unhang/node-facts/1", "schema": "x"}', "occurs twice"),
        (b'{"schema": "unhang/node/1", "host": "a"}', "the key 'groups' is missing"),
        (
            (
                b'{"schema": "unhang/node/1", "host": "a", "groups": [], "policy": {}, "status":'
                b' "ok", "message": "", "facts": {}}'
            ),
            "the document is not of schema",
        ),
        (b"[" * 200_000, "nest too deeply"),
        (b"\xff", "not UTF-8"),
        (b'{"x": "' + b"y" * (5 << 20) + b'"}', "more than 4194304"),
    ],
)
def test_what_is_no_document_says_why(piece, fault):
    arrival = read_arrival("here", "gpu001", piece)
    assert arrival.node is None
    assert fault in arrival.fault


def test_a_node_is_called_as_it_calls_itself_else_as_its_file():
    assert (
        read_arrival("here", "stem", json.dumps(facts("gpu007")).encode()).node["host"] == "gpu007"
    )
    assert read_arrival("here", "stem", json.dumps(facts(None)).encode()).node["host"] == "stem"
    node = {
        "schema": "unhang/node/1",
        "host": "of-run",
        "groups": ["g"],
        "policy": {},
        "status": "failed",
        "message": "no",
        "facts": None,
    }
    assert read_arrival("here", "stem", json.dumps(node).encode(), is_of_run=True).node == node
    loose = read_arrival("here", "stem", json.dumps(node).encode())
    assert (loose.node, loose.has_claims) == ({**node, "groups": []}, True)
