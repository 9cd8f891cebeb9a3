"""Hostile names in what other programs read, each in a real reader: a shell that completes, the CSV
parser of a spreadsheet (Python's, at each sign by which a country's own one splits), those of CI
for JUnit and SARIF, and the Prometheus client's."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from urllib.parse import unquote_to_bytes, urljoin

import defusedxml.ElementTree
import fleets
import hostile
import junitparser
import pytest
from foreign_schemas import junit_faults, sarif_faults
from prometheus_client.parser import text_string_to_metric_families

from unhang.audit.report.exports import RENDERERS
from unhang.audit.report.prometheus import render_prometheus
from unhang.core.text import visible
from unhang.jobs.lint.sarif import render_sarif

NAMES = {
    **{name: text for name, text in hostile.TEXTS.items() if len(text) < 1000},
    "command": "gpu$(touch MADE)`touch MADE`",
    "second command": "gpu;touch MADE&touch MADE|touch MADE",
    "redirection": "gpu>MADE",
    "quotes": "gpu'\"$(touch MADE)",
    "backslash": "gpu\\$(touch MADE)\\",
    "pattern": "gpu*$(touch MADE)",
    "pattern of one letter": "gpu?`touch MADE`",
    "braces": "gpu{a,b}",
    "history": "gpu!touch",
    "home": "~root",
    "option": "--hook=touch",
    "words": "gpu 1 2",
    "formula": "=cmd|' /C calc'!A0",
    "quoted formula": 'a;"=1+1"\t"+1|"@SUM(1)',
    "wide formula": "\uff1d1+1",
    "series": 'gpu"} 1\nunhang_nodes{verdict="critical"} 99',
    "backslash before a quote": 'gpu\\"} 1',
    "attachment": "[[ATTACHMENT|/etc/passwd]] [[[ATTACHMENT|x]]",
    "element": "]]></failure><testcase name='other'/>",
    "link": "[a](https://example.org) \\[b](c)",
    "scheme": "javascript:alert(1)",
    "other host": "//example.org/x",
    "fragment": "a#b?c%2e%2e/",
}
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def document(name):
    """Findings of a node of this name, which says it wherever it can; beside it one that looks
    alike."""
    texts = {"where": {"name": name}, "remedy": {"person": name}}
    hosts = (name, visible(name, 1024))
    found = [
        fleets.finding("xid-fatal", host, "error", name, name, name, **texts)
        for host in dict.fromkeys(hosts)
    ]
    return fleets.document(
        [*found, fleets.finding("a-rule", name, "info", name, name, name)], {"ok": len(found)}
    )


@pytest.fixture(params=NAMES.values(), ids=NAMES.keys())
def name(request):
    return request.param


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_no_cell_is_a_formula_at_whichever_sign_a_spreadsheet_splits(name, sign):
    text = RENDERERS["csv"](document(name))
    cells = [cell.strip() for row in csv.reader(io.StringIO(text), delimiter=sign) for cell in row]
    assert not [cell for cell in cells if cell.startswith(FORMULA)]


def test_junit_has_the_cases_of_a_plain_name_and_no_attachment(name):
    text = RENDERERS["junit"](document(name))
    assert junit_faults(text) == []
    (suite,) = junitparser.JUnitXml.fromstring(text.encode())
    assert {case.name for case in suite} == {visible(name, 2000)}
    elements = list(defusedxml.ElementTree.fromstring(text).iter())
    assert {one.tag for one in elements} <= {
        "testsuite",
        "testcase",
        "properties",
        "property",
        "failure",
        "system-out",
    }
    assert not [one for one in elements if "[[" in (one.text or "")]


def links_in(log):
    """The messages and descriptions in which a viewer of SARIF finds a link."""
    (run,) = log["runs"]
    texts = [one["message"]["text"] for one in run["results"]]
    texts += [one["shortDescription"]["text"] for one in run["tool"]["driver"]["rules"]]
    return [text for text in texts if re.search(r"\]\(", text)]


def test_sarif_of_a_run_has_no_link(name):
    text = RENDERERS["sarif"](document(name))
    assert sarif_faults(text) == []
    assert links_in(json.loads(text)) == []


def test_sarif_of_lint_leads_to_the_file_and_nowhere_else(name):
    # as Python names a byte that is no UTF-8
    file = name.replace("\0", "").replace("\ud800", "\udcff")
    more = {
        "found": visible(name),
        "why": "w",
        "instead": "i",
        "source": "https://docs.nvidia.com/deploy/",
    }
    text = render_sarif(
        {"findings": [{"file": file, "line": 1, "rule": "a-rule", "severity": "error", **more}]}
    )
    assert sarif_faults(text) == []
    assert links_in(json.loads(text)) == []
    place = json.loads(text)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    uri = place["artifactLocation"]["uri"]
    led = urljoin("file:///checkout/", uri)
    assert led.startswith("file:///")
    if not file.startswith(("/", "..")):
        assert unquote_to_bytes(led.removeprefix("file:///checkout/")) == os.fsencode(
            os.path.normpath(file)
        )


def test_prometheus_reads_the_series_of_a_plain_name_and_each_once(name):
    def series(text):
        samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]
        return [(one.name, tuple(sorted(one.labels.items()))) for one in samples]

    made = series(render_prometheus(document(name), 10))
    assert len(made) == len(set(made))
    plain = series(render_prometheus(document("plain"), 10))
    of_nodes = [one for one in made if one[0] == "unhang_node_verdict"]
    assert sorted(set(made) - set(of_nodes)) == sorted(
        one for one in plain if one[0] != "unhang_node_verdict"
    )
    assert {dict(labels)["node"] for _, labels in of_nodes} == {visible(name, 1024)}


ASK_BASH = (
    'source "$0"; COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9; _python_argcomplete unhang "" unhang;'
    ' printf "%s\\0" "${COMPREPLY[@]}"'
)


@pytest.fixture(scope="module")
def completing(tmp_path_factory):
    """typed -> what bash offers, in a folder with files of these names."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "unhang").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m unhang "$@"\n')
    (folder / "unhang").chmod(0o755)
    (folder / "files").mkdir()
    for one in [*NAMES.values(), "gpu001"]:
        if len(one) < 100 and not {"/", "\0", "\ud800"} & set(one):
            (folder / "files" / one).touch()
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HOME": str(folder),
    }
    script = subprocess.run(
        [folder / "unhang", "completion", "bash"], env=environment, capture_output=True, check=True
    )
    (folder / "script").write_bytes(script.stdout)

    def bash(*words):
        done = subprocess.run(
            ["bash", "--norc", "-c", *words],
            cwd=folder / "files",
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split("\0")[:-1]

    bash.script = str(folder / "script")
    bash.made = folder / "files" / "MADE"
    return bash


@pytest.mark.parametrize("quote", ["", '"', "'"])
@pytest.mark.parametrize("typed", ["unhang diagnose ", "unhang diagnose gpu"])
def test_what_bash_completes_is_one_word_and_starts_nothing(completing, typed, quote):
    before, _, begun = typed.rpartition(" ")
    offered = completing(ASK_BASH, completing.script, f"{before} {quote}{begun}")
    assert "gpu001" in {one.strip() for one in offered}
    for word in offered:
        closed = quote + (word.rstrip() if not quote else word + quote)
        assert len(completing('eval "set -- $1"; printf "%s\\0" "$@"', "bash", closed)) == 1, word
        assert not completing.made.exists(), word
