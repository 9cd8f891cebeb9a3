"""Each signature matches its own examples as declared, names its sources, and has bounded time on
any line."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from signature_faults import pattern_faults, shape_faults

from unhang.core.schemas.check import check_schema
from unhang.jobs.diagnose.matching.signatures import (
    load_causes,
    load_signatures,
    signature_files,
)
from unhang.jobs.diagnose.meaning.evidence import WEIGHTS, added_up, shares
from unhang.judge.rules.compiled_catalogue import load_catalogue

ROWS = [
    {**content.get("defaults", {}), **row}
    for _, content in signature_files()
    for row in content["signatures"]
]
SIGNATURES = {signature.id: signature for signature in load_signatures()}
CAUSES = load_causes()
HOME = Path(__file__).parents[2]
ROLES = {path.name for path in (HOME / "roles").iterdir() if path.is_dir()}


def proof_faults(row):
    """Faults of a row's examples: those that its pattern does not match as declared."""
    for line in row.examples["match"]:
        if not any(anchor in line.encode() for anchor in row.anchors):
            yield f"{row.id}: no anchor stands in {line!r}"
        elif not row.search(line):
            yield f"{row.id}: does not match {line!r}"
    for line in row.examples.get("near_miss", []):
        if row.search(line):
            yield f"{row.id}: matches its near miss {line!r}"


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_signature_matches_its_examples_and_not_its_near_misses(name):
    assert list(proof_faults(SIGNATURES[name])) == []


def test_no_id_stands_twice():
    assert len(SIGNATURES) == len(load_signatures()) > 500


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_row_is_complete_and_its_pattern_cannot_run_away(row):
    assert list(shape_faults(row)) == []


def test_no_pattern_is_compiled_before_it_is_searched():
    loaded = load_signatures.__wrapped__()
    assert not any({"pattern", "reads_digits"} & vars(one).keys() for one in loaded)
    assert len({one.reads_digits for one in loaded}) == 2


def test_signatures_name_causes_that_exist_and_sources_that_anybody_can_read():
    assert {
        name: causes
        for name, row in SIGNATURES.items()
        if (causes := {*row.for_, *row.against} - set(CAUSES))
    } == {}
    sources = [(name, source) for name, row in SIGNATURES.items() for source in row.sources]
    assert len(sources) >= len(SIGNATURES)
    assert [
        (name, source)
        for name, source in sources
        if urlsplit(source["url"]).scheme != "https" or len(source["says"]) <= 10
    ] == []


def test_every_file_of_signatures_is_read():
    folder = HOME / "tools/unhang/jobs/catalogue/signatures"
    assert {path for path, _content in signature_files()} == {
        path for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_cause_has_several_signatures_or_rules_over_facts_that_speak_for_it(cause):
    spoken = [one.id for one in SIGNATURES.values() if cause in one.for_]
    assert len(spoken) >= 2 or cause in (
        "disk_full",
        "port_in_use",
        "kernel_too_old",
        "rank_failed",
        "watchdog_timeout_too_short",
        "mtu_mismatch",
    )


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_remedy_is_a_role_with_real_policy_keys_or_says_what_a_person_must_do(cause):
    remedy = CAUSES[cause]["remedy"]
    assert remedy.get("role") in ROLES or len(remedy["person"]) > 20
    assert [str(fault) for fault in check_schema(remedy.get("variables", {}), "policy-1")] == []


def test_rules_that_a_cause_names_are_rules_of_the_audit():
    rules = {rule.id for rule in load_catalogue().rules}
    assert {rule for row in CAUSES.values() for rule in row.get("rules", ())} - rules == set()


@pytest.mark.parametrize(
    "pattern",
    ["a*b", "(?:ab{1,30}){1,30}c", "x.{0,500}y", ".{0,100}a.{0,100}b.{0,100}c.{0,100}d", "(a+)+$"],
)
def test_pattern_that_could_run_away_is_refused(pattern):
    assert list(pattern_faults(pattern))


def test_hints_never_add_up_to_a_proof():
    assert (
        added_up([WEIGHTS["weak"]] * 100)
        < WEIGHTS["supporting"]
        < WEIGHTS["strong"]
        < WEIGHTS["decisive"]
    )
    assert added_up([WEIGHTS["supporting"]] * 100) <= WEIGHTS["strong"]


def test_shares_of_belief_leave_room_for_none_of_these():
    believed = shares([6.0, 2.0])
    assert 0.9 < believed[0] < 1 and sum(believed) < 1 and shares([]) == []


def test_every_fact_of_a_signature_is_read():
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in (HOME / "tools/unhang/jobs").rglob("*.py")
    ]
    texts = [
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(getattr(node, "value", None), str)
    ]
    for name in ("next_steps", "overcome", "lines", "joined_facts"):
        texts += re.split(
            r"\W+", (HOME / f"tools/unhang/jobs/catalogue/tables/{name}.yml").read_text()
        )
    read = {text for text in texts if re.fullmatch(r"[a-z0-9_]+", text)}
    assert {one.fact for one in SIGNATURES.values() if one.fact} <= read
