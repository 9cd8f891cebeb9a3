"""Every row of the catalogue runs on its own examples, also with its facts taken away, and keeps the house's form."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.audit.rules.examples import catalogue_view, check_examples, verdict_of
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema

CATALOGUE = load_catalogue()
RULES = {rule.id: rule for rule in CATALOGUE.rules}
ROLES = {path.name for path in (Path(__file__).parents[5] / "roles").iterdir() if path.is_dir()}
PLACES = {
    "github.com", "docs.nvidia.com", "docs.pytorch.org", "docs.ansible.com", "docs.kernel.org", "bugs.launchpad.net", "www.debian.org",
    "manpages.debian.org", "www.slackbuilds.org", "www.gnu.org", "gcc.gnu.org", "man7.org", "docs.docker.com", "kubernetes.io", "slurm.schedmd.com",
    "www.freedesktop.org", "chrony-project.org", "download.nvidia.com", "help.ubuntu.com", "docs.redhat.com", "wiki.archlinux.org", "docs.aws.amazon.com",
}  # fmt: skip
"""Hosts that sources may point to: those of the projects and vendors themselves."""
SITUATIONS = {1, 2, 3, 4, 5}


def sources_of_everything():
    for rule in RULES.values():
        yield from ((rule.id, source) for source in rule.row["sources"])


def test_built_in_catalogue_has_no_fault():
    assert [str(fault) for fault in CATALOGUE.faults] == []


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_row_fails_on_its_matches_passes_its_near_misses_and_never_passes_without_its_facts(rule_id):
    assert [str(one) for one in check_examples(RULES[rule_id], CATALOGUE.tables, tuple(RULES))] == []


def test_no_rule_decides_on_a_node_of_which_nothing_was_read():
    view = catalogue_view(CATALOGUE.tables, tuple(RULES))
    of_nodes = [rule for rule in RULES.values() if rule.scope == "node" and rule.reads_facts]
    assert len(of_nodes) > 300
    assert [rule.id for rule in of_nodes if verdict_of(rule, {"run_status": "ok"}, view) not in ("unknown", "skip")] == []


def useful_remedy(remedy):
    """A role with real keys of the policy, or words for a person."""
    if "role" in remedy:
        return remedy["role"] in ROLES and list(check_schema(remedy.get("policy", {}), read_schema("policy-1"))) == []
    return len(remedy["person"]) > 15


def test_remedies_name_a_role_with_real_policy_keys_or_tell_a_person_what_to_look_at():
    assert [rule.id for rule in RULES.values() if not useful_remedy(rule.row["remedy"])] == []


def citable(source):
    """An address of the projects and vendors themselves, and its content. Rules about the audit itself are explained in the project's own pages."""
    address = urlsplit(source["url"])
    return source["url"].startswith("docs/") or (address.scheme == "https" and address.hostname in PLACES and len(source["says"]) > 15)


def test_sources_are_addresses_of_the_projects_themselves_and_say_what_stands_there():
    assert [(rule_id, source) for rule_id, source in sources_of_everything() if not citable(source)] == []


def test_each_situation_has_rules_that_can_be_found_on_a_node():
    named = {number for rule in RULES.values() for number in rule.row.get("situations", [])}
    assert named == SITUATIONS


def test_kernel_age_alone_is_called_weak_evidence():
    row = RULES["kernel-below-5-5"].row
    assert row["severity"] in ("warning", "info") and row["confidence"] == "reported"
    assert "weak evidence" in row["expected"].lower() and "P2P" in row["expected"] and "ACS" in row["expected"]
