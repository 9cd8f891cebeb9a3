"""Checks the formats that unhang writes for other programs: JUnit's XML and SARIF, by schemas that
permit only what is written."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema_rs
import yaml
from lxml import etree

HERE = Path(__file__).resolve().parent


@cache
def _junit():
    return etree.XMLSchema(etree.parse(HERE / "junit.xsd"))


@cache
def _sarif():
    schema = yaml.safe_load((HERE / "sarif.yaml").read_text())
    return jsonschema_rs.validator_for(schema, validate_formats=True)


def junit_faults(text):
    """One line for each violation; [] for none."""
    suite = etree.fromstring(text.encode())
    faults = [] if _junit().validate(suite) else [str(one) for one in _junit().error_log]
    cases = suite.findall("testcase")
    if suite.get("tests") != str(len(cases)):
        faults.append(f"{suite.get('tests')} tests said, {len(cases)} there")
    for name, kind in (("failures", "failure"), ("errors", "error")):
        if suite.get(name) != str(len(suite.findall(f"testcase/{kind}"))):
            faults.append(f"{suite.get(name)} {name} said, others there")
    return faults


def sarif_faults(text):
    """The same; also checks that each result's rule is among the rules, by its id and by its
    index."""
    log = json.loads(text)
    faults = [
        f"{'.'.join(map(str, one.instance_path))}: {one.message}"
        for one in _sarif().iter_errors(log)
    ]
    for run in log["runs"]:
        ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        faults += [
            f"{one['ruleId']} is no rule of the run"
            for one in run["results"]
            if one["ruleId"] not in ids
        ]
        faults += [
            f"{one['ruleId']} is not rule {one['ruleIndex']}"
            for one in run["results"]
            if "ruleIndex" in one and ids[one["ruleIndex"]] != one["ruleId"]
        ]
    return faults
