"""Nodes with invalid answers: each is recorded with its fault, other nodes keep their results, and
nothing of it reaches names, paths or the terminal."""

from __future__ import annotations

import json

import pytest
from local_fleet import ANY_FACTS, envelope

pytestmark = pytest.mark.xdist_group("test_bad_answers")  # one worker: the shared audit runs once

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
MARKUP = "<script>alert(1)</script>"
HOSTILE_NAMES = ["../../../escaped", "..", MARKUP, "spa ce", "ünïcode", "a" * 240]

ANSWERS = {
    "good": envelope(),
    "banner": "Welcome to node 7\nAuthorised use only\n" + envelope() + "\nlogout\n",
    "truncated": envelope()[:60],
    "empty": "",
    "not-json": "segmentation fault",
    "nan": envelope(
        node_facts=(
            '{"schema": "unhang/node-facts/1", "collector": {}, "sections": {"node": {"probe":'
            ' {"status": "ok"}, "uptime_s": NaN}}}'
        )
    ),
    "infinite": envelope(
        node_facts=(
            '{"schema": "unhang/node-facts/1", "collector": {}, "sections": {"node": {"probe":'
            ' {"status": "ok"}, "uptime_s": 1e999}}}'
        )
    ),
    "duplicate-key": envelope(
        node_facts=json.dumps(ANY_FACTS)[:-1] + ', "schema": "unhang/node-facts/1"}'
    ),
    "duplicate-outside": envelope()[:-1] + ', "node_facts": "{}"}',
    "deep": '{"node_facts": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
    "another-schema": envelope(node_facts=json.dumps({**ANY_FACTS, "schema": "other/1"})),
    "sections-a-list": envelope(node_facts=json.dumps({**ANY_FACTS, "sections": []})),
    "status-absurd": envelope(
        node_facts=json.dumps({**ANY_FACTS, "sections": {"node": {"probe": {"status": ["ok"]}}}})
    ),
    "facts-a-number": envelope(node_facts=7),
    "no-facts": json.dumps({"changed": False}),
    "module-failed": json.dumps({"failed": True, "msg": f"cannot go on {ESCAPE}\nsecond line"}),
    "huge": b'{"node_facts": "' + b"x" * 100_000_000 + b'"}',
    "hijack": envelope(
        ansible_facts={
            "inventory_hostname": "canary",
            "group_names": ["production"],
            "unhang_policy": {},
            "ansible_connection": "ssh",
        },
        inventory_hostname="canary",
        group_names=["production"],
        unreachable=True,
        _ansible_facts_gathered=True,
        warnings=[f"a warning {ESCAPE}"],
        deprecations=[{"msg": f"a deprecation {ESCAPE}"}],
        exception=f"Traceback {ESCAPE}",
    ),
    "jinja": envelope(
        node_facts=json.dumps(
            {
                **ANY_FACTS,
                "sections": {
                    "node": {
                        "probe": {"status": "ok"},
                        "hostname": "{{ lookup('pipe', 'touch /tmp/unhang-owned') }}",
                    }
                },
            }
        )
    ),
    "escapes": envelope(
        node_facts=json.dumps(
            {
                **ANY_FACTS,
                "sections": {"node": {"probe": {"status": "ok"}, "hostname": f"{ESCAPE}{MARKUP}"}},
            }
        )
    ),
    "surrogate": envelope(
        node_facts=json.dumps(
            {**ANY_FACTS, "sections": {"node": {"probe": {"status": "ok"}, "hostname": "a\ud800b"}}}
        )
    ),
}

EXPECTED = {
    "good": ("ok", None),
    "banner": ("ok", None),
    "truncated": ("invalid", "the answer is not one JSON object"),
    "empty": ("invalid", "but nothing"),
    "not-json": ("invalid", "segmentation fault"),
    "nan": ("invalid", "NaN is not a number"),
    "infinite": ("invalid", "too large"),
    "duplicate-key": ("invalid", "'schema' occurs twice"),
    "duplicate-outside": ("invalid", "'node_facts' occurs twice"),
    "deep": ("invalid", "nest too deeply"),
    "another-schema": ("invalid", "other/1"),
    "sections-a-list": ("invalid", "sections"),
    "status-absurd": ("invalid", "sections.node.probe"),
    "facts-a-number": ("invalid", "int"),
    "no-facts": ("invalid", "NoneType"),
    "module-failed": ("failed", "cannot go on"),
    "huge": ("invalid", "more than"),
    "hijack": ("ok", None),
    "jinja": ("ok", None),
    "escapes": ("ok", None),
    "surrogate": ("ok", None),
}


@pytest.fixture(scope="module")
def played(shared_fleet):
    """One audit of all these nodes."""
    for name, text in ANSWERS.items():
        shared_fleet.answering(name, text)
    for name in HOSTILE_NAMES:
        shared_fleet.answering(name, envelope())
    shared_fleet.groups = {"spare": ["hijack", "good"]}
    done = shared_fleet.play()
    return shared_fleet, done, shared_fleet.nodes()


@pytest.mark.parametrize("name", ANSWERS)
def test_each_answer_is_recorded_for_what_it_is(played, name):
    node = played[2][name]
    status, message = EXPECTED[name]
    assert node["status"] == status, node["message"]
    assert (message is None and node["message"] is None) or message in node["message"]
    assert (node["facts"] is not None) == (status == "ok")


def test_the_play_goes_on_and_every_host_has_its_file(played):
    fleet, done, nodes = played
    assert done.returncode == 0, done.stderr
    assert set(nodes) == set(ANSWERS) | set(HOSTILE_NAMES) == set(fleet.run_document()["hosts"])
    assert fleet.run_document()["finished"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_host_name_never_leads_out_of_the_run_folder(played, name):
    fleet, _, nodes = played
    assert nodes[name]["status"] == "ok"
    written = {path for path in fleet.folder.rglob("*") if path.suffix in (".json", ".raw")}
    assert all(path.parent.name == "nodes" or path.name == "run.json" for path in written)
    assert not [
        path
        for path in written
        if "<" in path.name or " " in path.name or len(path.name.encode()) > 255
    ]


def test_an_answer_with_ansible_facts_changes_neither_name_nor_groups(played):
    _, _, nodes = played
    assert nodes["hijack"]["host"] == "hijack"
    assert nodes["hijack"]["groups"] == ["spare"]
    assert "canary" not in nodes
    assert nodes["hijack"]["facts"] == ANY_FACTS


def test_what_was_no_document_is_kept_beside_it_and_is_cut(played):
    fleet, _, _ = played
    raw = fleet.runs / "latest" / "nodes" / "huge.raw"
    assert raw.stat().st_size == 4 * 1024 * 1024
    assert (fleet.runs / "latest" / "nodes" / "not-json.raw").read_text() == ANSWERS["not-json"]
    assert not (fleet.runs / "latest" / "nodes" / "good.raw").exists()


def test_no_terminal_escape_reaches_the_screen_or_a_message(played):
    fleet, done, nodes = played
    assert "\x1b" not in done.stdout + done.stderr
    assert all(
        "\x1b" not in (node["message"] or "") and "\n" not in (node["message"] or "")
        for node in nodes.values()
    )
    verbose = fleet.play(
        "-v", "--limit", "hijack,module-failed,escapes", environment={"ANSIBLE_NOCOLOR": "1"}
    )
    assert "\x1b" not in verbose.stdout + verbose.stderr
    assert "module-failed" in verbose.stdout + verbose.stderr


def test_facts_are_data_and_no_templates(played):
    _, _, nodes = played
    assert nodes["jinja"]["facts"]["sections"]["node"]["hostname"].startswith("{{ lookup(")


def test_facts_keep_their_characters_and_lone_surrogates_do_no_harm(played):
    _, _, nodes = played
    assert nodes["escapes"]["facts"]["sections"]["node"]["hostname"] == ESCAPE + MARKUP
    assert nodes["surrogate"]["facts"]["sections"]["node"]["hostname"] == "a?b"
