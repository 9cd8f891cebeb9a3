"""A diagnosis as the command line makes it: the files with which a job was started are read as lint
reads them."""

from __future__ import annotations

from functools import partial

from unhang.commands.for_jobs import JOB_READER, REFERENCE
from unhang.jobs.diagnose import diagnosing
from unhang.jobs.diagnose.log_facts import gather_facts

read_all = partial(diagnosing.read_all, reader=JOB_READER)


def diagnose_lines(names):
    """By the lines alone, without what rules find in the output of tools."""
    inputs, scans, flights = read_all(names)
    return diagnosing.document(inputs, gather_facts(scans, flights))


def diagnose(names, more=()):
    inputs, scans, flights = read_all(names)
    facts, printed = diagnosing.with_printed(gather_facts(scans, flights), REFERENCE)
    return diagnosing.document(inputs, facts, [*more, *printed])
