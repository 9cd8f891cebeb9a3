"""`unhang judge -` reads the documents of many nodes, one after another, and says which of them is wrong."""

from __future__ import annotations

import io
import json
import sys

import fleets
import pytest

from unhang.base.errors import UserError
from unhang.commands.node_documents import run_of_documents
from unhang.run import run_folder


@pytest.fixture
def piped(tmp_path, monkeypatch):
    """text -> the hosts of the run that is made of it."""
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))

    def read(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return run_folder.read_run(run_of_documents(["-"])).hosts

    return read


def node(host):
    return {**fleets.node(host, ["all"], {}), "message": 'a text with } { ] and \\" in it'}


@pytest.mark.parametrize("between", ["", "\n", "\n\n  ", "\r\n"])
@pytest.mark.parametrize("indent", [None, 2])
def test_documents_one_after_another_are_nodes_of_one_run(piped, between, indent):
    assert piped(between.join(json.dumps(node(host), indent=indent) for host in ("gpu001", "gpu002", "gpu003")) + between) == ["gpu001", "gpu002", "gpu003"]


def test_one_document_is_still_one_node(piped):
    assert piped(json.dumps(node("gpu001"))) == ["gpu001"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "standard input: expected a document of unhang collect, found: no valid JSON"),
        (json.dumps(node("a")) + '{"schema": "unh', "standard input, document 2: expected a document of unhang collect, found: no valid JSON"),
        (json.dumps(node("a")) + "ssh: connect refused", "standard input, document 2: expected a document"),
        (json.dumps(node("a")) * 2, "standard input, document 2: expected each node once, found a again"),
        ("[" * 100_000, "standard input: expected a document"),
        ("}" + json.dumps(node("a")), "standard input, document 1: expected a document"),
    ],
)
def test_what_is_no_document_is_named_by_its_number(piped, text, message):
    with pytest.raises(UserError) as refused:
        piped(text)
    assert str(refused.value).startswith(message)
