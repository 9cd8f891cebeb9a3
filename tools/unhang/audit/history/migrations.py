"""The schemas of the history, one step from each to the next. PRAGMA user_version holds the number
of the last step.

A released step never changes: every change is a further step. A span begins with `from_run` and
ends before `to_run`, the run that found another value; null while it lasts. A host that a run did
not read keeps its spans.
"""

from __future__ import annotations

# Runs, their hosts, and each section of a node's configuration as spans over contents, which are
# stored once.
_FACTS = """
CREATE TABLE runs (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, folder TEXT NOT NULL, started TEXT, finished TEXT, inventory TEXT, host_limit TEXT,
                   stored TEXT NOT NULL);
CREATE TABLE hosts (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE visits (host INTEGER NOT NULL REFERENCES hosts, run INTEGER NOT NULL REFERENCES runs, status TEXT NOT NULL, PRIMARY KEY (host, run)) WITHOUT ROWID;
CREATE INDEX visits_of_run ON visits (run);
CREATE TABLE contents (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE facts (id INTEGER PRIMARY KEY, host INTEGER NOT NULL REFERENCES hosts, section TEXT NOT NULL, content INTEGER NOT NULL REFERENCES contents,
                    from_run INTEGER NOT NULL REFERENCES runs, to_run INTEGER REFERENCES runs);
CREATE UNIQUE INDEX facts_that_hold ON facts (host, section) WHERE to_run IS NULL;
CREATE INDEX facts_by_host ON facts (host, section, from_run);
CREATE INDEX facts_by_run ON facts (from_run);
"""  # noqa: E501
# Findings: a problem is a rule at a place on a node with its severity and waiver; a finding is the
# span in which a node had it.
_FINDINGS = """
ALTER TABLE runs ADD COLUMN judged TEXT;
ALTER TABLE runs ADD COLUMN policy TEXT;
ALTER TABLE runs ADD COLUMN critical INTEGER;
ALTER TABLE runs ADD COLUMN error INTEGER;
ALTER TABLE runs ADD COLUMN warning INTEGER;
ALTER TABLE runs ADD COLUMN unread INTEGER;
ALTER TABLE runs ADD COLUMN healthy INTEGER;
CREATE TABLE rules (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, title TEXT NOT NULL);
CREATE TABLE problems (id INTEGER PRIMARY KEY, rule INTEGER NOT NULL REFERENCES rules, severity TEXT NOT NULL, verdict TEXT NOT NULL, scope TEXT NOT NULL,
                       place TEXT NOT NULL, waiver TEXT NOT NULL, UNIQUE (rule, severity, verdict, scope, place, waiver));
CREATE TABLE findings (id INTEGER PRIMARY KEY, host INTEGER NOT NULL REFERENCES hosts, problem INTEGER NOT NULL REFERENCES problems, found TEXT NOT NULL,
                       from_run INTEGER NOT NULL REFERENCES runs, to_run INTEGER REFERENCES runs, ended TEXT);
CREATE UNIQUE INDEX findings_that_hold ON findings (host, problem) WHERE to_run IS NULL;
CREATE INDEX findings_by_host ON findings (host, problem, from_run);
CREATE INDEX findings_by_problem ON findings (problem, from_run);
CREATE INDEX findings_by_run ON findings (from_run);
CREATE INDEX findings_by_end ON findings (to_run);
"""  # noqa: E501
# The bandwidth of a node alone in the smoke test.
_BANDWIDTH = """
CREATE TABLE bandwidth (host INTEGER NOT NULL REFERENCES hosts, op TEXT NOT NULL, size_bytes INTEGER NOT NULL, world_size INTEGER NOT NULL,
                        run INTEGER NOT NULL REFERENCES runs, busbw_gb_s REAL NOT NULL, PRIMARY KEY (host, op, size_bytes, world_size, run)) WITHOUT ROWID;
"""  # noqa: E501
# Nodes without GPUs.
_NOT_GPU_NODES = "ALTER TABLE runs ADD COLUMN no_gpu INTEGER;"
STEPS = (_FACTS, _FINDINGS, _BANDWIDTH, _NOT_GPU_NODES)
