"""A rule lies where a newcomer looks for it: in the folder of the facts' section that decides it, with comparisons of nodes and with the policy apart."""

from __future__ import annotations

import yaml

from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.core.catalogue.kept_yaml import folders_of
from unhang.core.schemas.shapes import fact_shapes

RULES = folders_of("rules")[0]
RULE = {rule.id: rule for rule in load_catalogue().rules}
SEVERAL_SECTIONS = {"cuda": {"cuda", "torch", "limits"}, "software_releases": set(fact_shapes()), "clouds": set(fact_shapes())}


def ids_in(path):
    return [row["id"] for row in yaml.safe_load(path.read_text())["rules"]]


def subject(path):
    return path.relative_to(RULES).parts[0].removesuffix(".yml")


def test_folders_are_the_sections_of_the_facts_and_the_two_comparisons():
    named = {subject(path) for path in RULES.rglob("*.yml")} - set(SEVERAL_SECTIONS)
    assert named <= {*fact_shapes(), "groups", "policy"}


def test_every_rule_reads_the_section_of_its_folder_or_has_its_name():
    elsewhere = {}
    for path in RULES.rglob("*.yml"):
        if subject(path) not in ("groups", "policy"):
            sections = SEVERAL_SECTIONS.get(path.stem) or {subject(path)}
            others = [name for name in ids_in(path) if not name.startswith(subject(path).split("_")[0])]
            elsewhere |= {name: str(path) for name in others if not sections & {read[0] for read in RULE[name].decision_reads}}
    assert elsewhere == {}


def test_comparisons_of_nodes_and_only_they_are_in_groups():
    assert {name for path in (RULES / "groups").glob("*.yml") for name in ids_in(path)} == {name for name, rule in RULE.items() if rule.scope != "node"}


def test_no_file_is_too_long_to_be_read():
    assert [str(path) for path in RULES.rglob("*.yml") if len(path.read_text().splitlines()) > 440] == []
