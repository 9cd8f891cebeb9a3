"""The role node_gate against a planted root: this node's record and nothing else, previewed, placed once, taken back, and read by the audit."""

from __future__ import annotations

import json

import pytest
from fakes.ansible_module import tree
from fakes.role_play import play_here
from recorded_roots import facts

from unhang_node.root import Root

SIGNED = "-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\nssh-ed25519 AAAAC3Nza the gate\n"


def record(host="planted"):
    """A record's line."""
    return json.dumps({"schema": "unhang/admission/1", "host": host, "expires": "2027-11-20", "versions": {"driver": "580.1"}}) + "\n"


@pytest.fixture
def root(tmp_path):
    """The node's folder, and the controller's with its record."""
    (tmp_path / "node/etc").mkdir(parents=True)
    (tmp_path / "admission").mkdir()
    (tmp_path / "admission/planted").write_text(record() + SIGNED)
    return tmp_path / "node"


def play(root, *arguments, **variables):
    given = {"node_gate_rootfs": str(root), "node_gate_records": str(root.parent / "admission"), **variables}
    return play_here(root.parent, "node_gate", given, *arguments)


def files(root):
    """What a role could have touched, without the lock and the saved states."""
    return {path: text for path, text in tree(root).items() if not str(path).lstrip("/").startswith("var")}


def test_the_record_is_previewed_placed_once_and_taken_back(root):
    before, whole = files(root), tree(root)
    foretold = play(root, "--check", "--diff")
    assert (foretold.code, foretold.changed) == (0, {"planted": 1})
    assert "580.1" in foretold.said
    assert tree(root) == whole
    assert play(root).changed == {"planted": 1}
    found = facts(Root([str(root)]), "node")["admission"]
    assert (found["record"]["driver"], found["record"]["signed"], found["private_keys"]) == ("580.1", True, [])
    assert play(root).changed == {"planted": 0}
    assert play(root, node_gate_state="absent").changed == {"planted": 1}
    assert files(root) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "expected the admission record of planted at"),
        (record("gpu002") + SIGNED, "found something else"),
        (record() + "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----\n", "found something else"),
        ("ssh-ed25519 AAAAC3Nza the gate\n", "found something else"),
    ],
)
def test_what_is_no_record_of_this_node_is_refused_before_anything_is_written(root, text, words):
    place = root.parent / "admission/planted"
    place.unlink() if text is None else place.write_text(text)
    before = files(root)
    refused = play(root)
    assert refused.code != 0
    assert words in " ".join(refused.said.split())
    assert files(root) == before
