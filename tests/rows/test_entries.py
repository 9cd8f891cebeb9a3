"""Entries of a folder are checked as strictly as rules, and named in the faults."""

from __future__ import annotations

import pytest
import yaml

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang_node.base.versions.compare import check_version, compare_versions, holds

ENTRY = {
    "id": "entry-own", "title": "A fault of our own jobs", "known_to": "job",
    "why": "only the launcher knows how many ranks share a GPU",
    "versions": [{"of": "nccl", "from": "2.19", "below": "2.20.3"}], "symptoms": ["hangs"],
    "remedy": "another launcher",
    "sources": [{"url": "https://example.org/", "says": "so"}], "confidence": "reported",
}  # fmt: skip


def loaded(tmp_path, *entries, name="own.yml"):
    (tmp_path / name).write_text(yaml.safe_dump({"entries": list(entries)}, sort_keys=False))
    return load_catalogue([tmp_path], built_in=False)


def test_an_entry_is_read(tmp_path):
    catalogue = loaded(tmp_path, ENTRY)
    assert catalogue.faults == ()
    assert [row["id"] for row in catalogue.entries] == ["entry-own"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"why": None}, "why"),
        ({"known_to": "rank"}, "known_to"),
        ({"versions": [{"of": "cudnn"}]}, "versions"),
        ({"settings": ["nccl_debug"]}, "settings"),
        ({"sources": []}, "sources"),
        ({"worklaround": {"what": "x", "cost": "y"}}, "worklaround"),
    ],
)
def test_an_entry_with_a_fault_is_named_with_file_line_and_place(tmp_path, change, message):
    row = {key: value for key, value in {**ENTRY, **change}.items() if value is not None}
    catalogue = loaded(tmp_path, row)
    assert catalogue.entries == ()
    (fault,) = catalogue.faults
    assert fault.startswith(f"{tmp_path / 'own.yml'}:")
    assert "entry entry-own" in fault
    assert message in fault


def test_an_id_is_used_once_by_rules_and_entries_together(tmp_path):
    (tmp_path / "b.yml").write_text(yaml.safe_dump({"entries": [ENTRY]}))
    catalogue = loaded(tmp_path, ENTRY, name="a.yml")
    (fault,) = catalogue.faults
    assert "the id entry-own is already used at" in fault
    assert fault.startswith(str(tmp_path / "b.yml"))


def test_a_rule_that_names_no_rule_in_also_is_told_the_nearest(tmp_path):
    rule = {
        "id": "own", "title": "Own", "severity": "info", "scope": "node", "when": "gpus.count == 0",
        "expected": "x", "found": "y",
        "remedy": {"person": "look at it"},
        "sources": [{"url": "https://example.org/", "says": "so"}], "confidence": "reported",
        "also": ["driver-nouveau-loded"],
        "examples": {"match": [{"gpus": {"count": 0}}], "near_miss": [{"gpus": {"count": 1}}]},
    }  # fmt: skip
    (tmp_path / "own.yml").write_text(yaml.safe_dump({"rules": [rule]}, sort_keys=False))
    (fault,) = load_catalogue([tmp_path]).faults
    assert "there is no rule driver-nouveau-loded (did you mean driver-nouveau-loaded?)" in fault


ENTRIES = load_catalogue().entries


@pytest.mark.parametrize("row", ENTRIES, ids=lambda row: row["id"])
def test_entry_says_why_no_rule_can_decide_it_and_where_it_is_reported(row):
    assert len(row["why"]) > 30
    assert all(
        source["url"].startswith("https://") and len(source["says"]) > 15
        for source in row["sources"]
    )


@pytest.mark.parametrize("row", ENTRIES, ids=lambda row: row["id"])
def test_versions_of_an_entry_are_versions_in_order(row):
    for part in row.get("versions", ()):
        order = "generic" if part["of"] == "torch" else part["of"]
        ends = [part[key] for key in ("from", "below") if key in part]
        assert ends
        assert [check_version(end, order) for end in ends] == [None] * len(ends)
        assert len(ends) < 2 or holds(compare_versions(ends[0], ends[1], order), "<")
