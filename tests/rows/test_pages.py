"""The pages that are written from the catalogue name every rule, and every fact is either used by a
rule or listed as unused."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from unhang.audit.reference.pages import (
    PAGES,
    fact_paths,
    main,
    render_facts,
    render_rules,
    rules_by_fact,
)
from unhang.audit.rules.compiled_catalogue import load_catalogue

HOME = Path(__file__).resolve().parents[2]
CATALOGUE = load_catalogue()
USED = rules_by_fact(CATALOGUE)


def test_make_manual_writes_every_page(tmp_path):
    folder = tmp_path / "build" / "manual"
    main(folder)
    (tmp_path / "docs").symlink_to(HOME / "docs")
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert {*texts} == {*PAGES}
    assert all(text.startswith("# ") for text in texts.values())
    links = {link for text in texts.values() for link in re.findall(r"\]\(([^)#\s]+\.md)", text)}
    assert links
    assert [link for link in links if not (folder / link).is_file()] == []


def test_every_rule_and_table_stands_on_the_page_of_rules():
    page = render_rules(CATALOGUE)
    assert [rule.id for rule in CATALOGUE.rules if page.count(f"\n### {rule.id}\n") != 1] == []
    assert [name for name in CATALOGUE.tables if f"| `{name}` |" not in page] == []


@functools.cache
def page_of_facts():
    return render_facts(CATALOGUE)


def test_each_fact_is_used_by_a_rule_or_listed_as_unused():
    lines, paths = set(page_of_facts().splitlines()), fact_paths()
    assert len(paths) > 300
    assert [path for path in paths if (f"- `{path}`" in lines) == bool(USED[path])] == []
    assert [
        path
        for path in paths
        if USED[path] and f"| `{path}` | {', '.join(USED[path])} |" not in lines
    ] == []


def only_asks_what_was_read(rule):
    """Whether all that it asks is that a section could be read."""
    asked = {
        path
        for path in rule.decision_reads
        if path[0] not in ("policy", "groups", "host", "run_status", "message", "policy_error")
    }
    return all("probe" in path for path in asked)


def test_every_rule_is_found_under_a_fact():
    found = {rule_id for ids in USED.values() for rule_id in ids}
    rules = [rule for rule in CATALOGUE.rules if rule.reads_facts]
    assert [
        rule.id for rule in rules if rule.id not in found and not only_asks_what_was_read(rule)
    ] == []


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("driver.loaded.version", "driver-545-23-08-p2p-deadlock"),
        ("gpus.devices[*].pcie.width_now", "pcie-width-below-max"),
        ("faults.events[*].code", "xid-fatal"),
        ("torch.environments[*].packages", "torch-wheels-of-another-cuda"),
        ("gpus.devices[*].clocks.throttle_reasons", "gpu-slowed-by-hardware"),
    ],
)
def test_facts_are_joined_with_the_rules_that_read_them(path, rule):
    assert rule in USED[path]
