"""Each rule over several facts names logs of ours that it decides: without the rule their answer is
worse."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from diagnosis_scores import learnt_from, logs_of
from job_diagnosis import read_all

from unhang.commands.for_jobs import REFERENCE
from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.diagnosing import document, with_printed
from unhang.jobs.diagnose.log_facts import gather_facts
from unhang.jobs.diagnose.matching.scanning import Sieve
from unhang.jobs.diagnose.matching.signatures import load_signatures
from unhang.jobs.diagnose.meaning.rules.combining import RULES
from unhang.jobs.diagnose.meaning.rules.job_file_rules import JOB_RULES

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMED = re.compile(r"\bdiagnose\w*/[\w/.-]*[\w-]")
CERTAINTIES = ("possible", "likely", "sure")


def named_logs(rule):
    """The names of logs in a rule's docstring, without the line ends."""
    return NAMED.findall(rule.__doc__ or "")


@functools.cache
def rows(path):
    return load_yaml(path)[0]


def log_and_truth(name, tmp_path):
    """(files, causes that are right; () for a log without a fault) of a name. A name that is no log
    raises."""
    folder, _, rest = name.partition("/")
    if folder == "diagnose_batches":
        case = next((FIXTURES / folder).glob(f"{rest}-*"))
        label = rows(case / "label.yaml")
        proposed = (
            label["proposed_class"] if label["cause_class"] == "other" else label["cause_class"]
        )
        return [str(one) for one in logs_of(case)], () if label.get("negative") else (proposed,)
    if folder == "diagnose":
        log = FIXTURES / f"{name}.log"
        return [str(log if log.is_file() else FIXTURES / name)], (rest.partition("/")[0],)
    if (labels := FIXTURES / folder / "labels.yml").is_file():
        return [str(FIXTURES / f"{name}.txt")], rows(labels)[rest]["right"]
    file, _, id_ = rest.partition("/")
    row = next(one for one in rows(FIXTURES / folder / f"{file}.yml") if one.get("id") == id_)
    for of_file, text in row.get("files", {"log.txt": row.get("text")}).items():
        (tmp_path / of_file).write_text(text, encoding="utf-8")
    return [str(tmp_path)], (row["cause"],) if row.get("cause") else ()


def goodness(answer, right):
    """(first place, named above a remark, certainty) of a log with a fault; of one without, whether
    nothing is named."""
    named = [one["cause"] for one in answer["causes"] if one["severity"] != "info"]
    first = answer["causes"][0] if answer["causes"] else None
    if not right:
        return (not named,)
    is_first = first is not None and first["cause"] in right
    return (
        is_first,
        bool(named) and named[0] in right,
        CERTAINTIES.index(first["certainty"]) if is_first else 0,
    )


def is_better_with(rule, files, right, sieve=None, ids=frozenset()):
    """sieve, ids: of what is searched and which rules count, where a log is answered as if it had
    not been seen."""
    inputs, scans, flights = read_all(files, sieve=sieve)
    facts, printed = with_printed(gather_facts(scans, flights), REFERENCE)
    own = {one.id for one in rule(facts)}
    with_it, without_it = (
        document(inputs, facts, printed, without=left_out) for left_out in (ids, ids | own)
    )
    return goodness(with_it, right) > goodness(without_it, right)


def is_better_unseen(rule, files, right):
    """The same without the signatures and rules that were learnt from the log's batch."""
    batch = Path(files[0]).parents[1]
    urls, ids = learnt_from(batch, [rows(path) for path in batch.glob("*/label.yaml")])
    known = [
        row
        for row in load_signatures()
        if row.id not in ids and not urls & {source["url"] for source in row.sources}
    ]
    return is_better_with(rule, files, right, Sieve(known), ids)


@pytest.mark.parametrize("rule", RULES + JOB_RULES, ids=lambda rule: rule.__name__)
def test_each_log_that_a_rule_names_is_answered_better_with_it(rule, tmp_path):
    names = named_logs(rule)
    assert names, "name a log below tests/fixtures that it decides, or delete the rule"
    for place, name in enumerate(names):
        (own := tmp_path / str(place)).mkdir()
        files, right = log_and_truth(name, own)
        assert is_better_with(rule, files, right) or (
            name.startswith("diagnose_batches/") and is_better_unseen(rule, files, right)
        ), name
