"""What a command of unhang writes, each command of unhang that reads such a document reads: over the
demo fleet and this machine. Evidence of jobs is read again in tests/torch, where jobs run; the
record of an admission, a preview and the status of a rollout, where these are made."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from read_again import fits, printed

pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="module")
def written(demo_audit, tmp_path_factory):
    """{document: its path}, each as a command wrote it."""
    folder = tmp_path_factory.mktemp("written")
    run = folder / demo_audit.folder.name
    shutil.copytree(demo_audit.folder, run)
    texts = {
        "collected": printed("collect"),
        "findings": printed("report", run, "-o", "json"),
        "policy": printed("policy", "--from", run, "--limit", "gpu001,gpu002,gpu003"),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    printed("plan", run)
    smoke = f"smoke --local --nproc 2 --phases bandwidth --sizes 64K --out {folder}/smoke"
    printed(*smoke.split())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNHANG_WATCHED", str(folder / "record"))
        printed("watch", "--", sys.executable, "-c", "")
    places = {one: folder / one for one in (*texts, "record", "smoke")}
    return {**places, "run": run, "plan": run / "plan.json"}


READERS = [
    ("run", "judge {run}"),
    ("run", "report {run}"),
    ("run", "report {run} -o html"),
    ("run", "history"),
    ("run", "plan {run}"),
    ("run", "policy --from {run} --limit gpu001"),
    ("run", "diagnose tests/fixtures/inspect/evidence/never-RAS-and-stacks.json --run {run}"),
    ("findings", "report {findings}"),
    ("collected", "judge {collected}"),
    ("collected", "history diff {collected} {collected}"),
    ("policy", "judge {run} --policy {policy}"),
    ("plan", "remediate {plan} --status"),
    ("record", "watch --record {record}"),
    ("smoke", "policy --from {run} --limit gpu001 --smoke {smoke}"),
    ("smoke", "report {run} -o html --smoke {smoke}"),
]


@pytest.mark.parametrize(("document", "reader"), READERS, ids=[reader for _, reader in READERS])
def test_what_one_command_writes_another_reads(document, reader, written, monkeypatch):
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("UNHANG_RUNS", str(written["run"].parent))
    assert written[document].exists()
    assert printed(*reader.format(**written).split())


@pytest.mark.parametrize(
    ("document", "schema"),
    [
        ("findings", "findings-1"),
        ("run/findings.json", "findings-1"),
        ("run/run.json", "run-1"),
        ("plan", "plan-1"),
        ("collected", "node-facts-1"),
        ("smoke", "smoke-1"),
    ],
)
def test_what_is_written_fits_its_schema(document, schema, written):
    name, _, within = document.partition("/")
    fits(json.loads((written[name] / within if within else written[name]).read_text()), schema)
