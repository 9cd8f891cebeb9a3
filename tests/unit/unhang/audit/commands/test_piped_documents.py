"""`unhang judge -` reads the documents of many nodes, one after another, and says which of them is
wrong."""

from __future__ import annotations

import io
import json
import sys

import fleets
import pytest

from unhang.audit.commands.node_documents import run_of_documents
from unhang.core.errors import UserError
from unhang.core.run import run_folder


@pytest.fixture
def piped(tmp_path, monkeypatch):
    """text -> the hosts of the run that is made of it."""
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))

    def read(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return run_folder.read_run(run_of_documents(["-"])).hosts

    return read


OK = {"probe": {"status": "ok"}}


def node(host):
    return {**fleets.node(host, ["all"], {}), "message": 'a text with } { ] and \\" in it'}


@pytest.mark.parametrize("between", ["", "\n", "\n\n  ", "\r\n"])
@pytest.mark.parametrize("indent", [None, 2])
def test_documents_one_after_another_are_nodes_of_one_run(piped, between, indent):
    assert piped(
        between.join(
            json.dumps(node(host), indent=indent) for host in ("gpu001", "gpu002", "gpu003")
        )
        + between
    ) == ["gpu001", "gpu002", "gpu003"]


def test_one_document_is_still_one_node(piped):
    assert piped(json.dumps(node("gpu001"))) == ["gpu001"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "standard input: it is empty, not a document of unhang collect"),
        (
            json.dumps(node("a")) + '{"schema": "unh',
            "standard input, document 2: this is not valid JSON",
        ),
        (
            json.dumps(node("a")) + "ssh: connect refused",
            "standard input, document 2: this is not valid JSON",
        ),
        ("[" * 100_000, "standard input: objects nest too deeply"),
        ("}" + json.dumps(node("a")), "standard input: this is not valid JSON"),
    ],
)
def test_what_is_no_document_is_named_by_its_number(piped, text, message):
    with pytest.raises(UserError) as refused:
        piped(text)
    assert str(refused.value).startswith(message)


def test_groups_and_policy_that_nodes_send_are_dropped_and_named(piped, tmp_path, capsys):
    assert piped(
        json.dumps({**node("gpu001"), "policy": {"driver": {"version": "535.104.05"}}})
    ) == ["gpu001"]
    (written,) = (tmp_path / "runs").glob("*/nodes/gpu001.json")
    assert (run_folder.read_node(written)["groups"], run_folder.read_node(written)["policy"]) == (
        [],
        {},
    )
    assert (
        capsys.readouterr().err
        == "unhang: groups and policy count only from a run folder or an inventory, and were not"
        " used of gpu001\n"
    )


def test_a_node_that_comes_twice_is_named_and_ends_the_judgement_of_no_other(piped, capsys):
    """A node that sends another's name loses only its own result."""
    own = {
        **node("gpu001"),
        "facts": fleets.node(
            "gpu001", [], {"node": {**OK, "hostname": "gpu001", "machine_id": "a" * 32}}
        )["facts"],
    }
    other = {
        **own,
        "facts": fleets.node(
            "gpu001", [], {"node": {**OK, "hostname": "gpu009", "machine_id": "b" * 32}}
        )["facts"],
    }
    assert piped("".join(map(json.dumps, (other, own, node("gpu002"))))) == ["gpu001", "gpu002"]
    lines = capsys.readouterr().err.splitlines()
    assert "two machines answer by this name; that of standard input, document 2 counts" in lines[0]
    assert lines[1] == "unhang: 1 node came more than once, one document of each counts: gpu001"
