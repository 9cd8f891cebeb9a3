"""What the project's own catalogue asks of a rule, and a site's rules need not have: public
sources, a next step in words, a place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from unhang.core.schemas.shapes import every_fact, fact_shapes
from unhang.judge.rules.rules import Rule

HOSTS = frozenset((
    "github.com", "docs.nvidia.com", "docs.pytorch.org", "docs.ansible.com", "docs.kernel.org",
    "bugs.launchpad.net", "www.debian.org",
    "manpages.debian.org", "www.slackbuilds.org", "www.gnu.org", "gcc.gnu.org", "man7.org",
    "docs.docker.com", "kubernetes.io", "slurm.schedmd.com",
    "www.freedesktop.org", "chrony-project.org", "download.nvidia.com", "help.ubuntu.com",
    "docs.redhat.com", "wiki.archlinux.org", "docs.aws.amazon.com",
))  # fmt: skip
"""Hosts that sources may point to: those of the projects and vendors themselves."""
SEVERAL_SECTIONS = {
    "cuda": {"cuda", "torch", "limits"},
    "software_releases": set(fact_shapes()),
    "clouds": set(fact_shapes()),
    "comparisons": {"gpus", "interconnect", "network"},  # of which a node has several like things
}
"""Files whose rules read other sections than the one that the file is called."""
COMPARISONS = ("groups", "policy")
SHORTEST = 16  # letters of a sentence that tells a person something
MOST_LINES = 600


def house_faults(rule: Rule) -> Iterator[str]:
    """One line for each fault, as `sources.0.url: expected …, found …`."""
    for place, source in enumerate(rule.row["sources"]):
        yield from (f"sources.{place}.{fault}" for fault in _source_faults(source))
    if "role" not in rule.row["remedy"] and len(rule.row["remedy"]["person"]) < SHORTEST:
        yield (
            "remedy.person: expected what a person must look at, found"
            f" {rule.row['remedy']['person']!r}"
        )
    if fault := proof_fault(rule):
        yield fault


def _source_faults(source: Mapping[str, Any]) -> Iterator[str]:
    """Rules about the audit itself are explained in the project's own pages."""
    if source["url"].startswith("docs/"):
        return
    address = urlsplit(source["url"])
    if address.scheme != "https" or address.hostname not in HOSTS:
        yield (
            f"url: expected https:// and one of {', '.join(sorted(HOSTS))}, or a page in docs/,"
            f" found {source['url']}"
        )
    if len(source["says"]) < SHORTEST:
        yield f"says: expected what it says, in a sentence, found {source['says']!r}"


def place_faults(file: Path, folder: Path, rules: Sequence[Rule]) -> Iterator[str]:
    """Faults of where rules lie. folder: the catalogue's rules; rules: those of this file."""
    subject = file.relative_to(folder).parts[0].removesuffix(".yml")
    if subject not in (*SEVERAL_SECTIONS, *COMPARISONS, *fact_shapes()):
        yield (
            "expected a folder or file named as a section of the facts, groups or policy, found"
            f" {subject}"
        )
    if (lines := len(file.read_text(encoding="utf-8").splitlines())) > MOST_LINES:
        yield f"expected at most {MOST_LINES} lines, found {lines}"
    sections = SEVERAL_SECTIONS.get(file.stem) or {subject}
    for rule in rules:
        if (rule.scope != "node") != (subject == "groups"):
            yield (
                f"{rule.id}: expected comparisons of nodes, and no other rule, in groups/, found"
                f" scope {rule.scope} here"
            )
        own_name = rule.id.startswith(subject.split("_")[0])
        if (
            subject not in COMPARISONS
            and not own_name
            and not sections & {read[0] for read in rule.decision_reads}
        ):
            yield (
                f"{rule.id}: expected a rule that reads {' or '.join(sorted(sections))}, found none"
                " of it"
            )


def proof_fault(rule: Rule) -> str | None:
    """Whether `proof` is missing or needless: the fact that proves a fault on the node where the
    sources alone do not."""
    reason = _needs_proof(rule)
    if bool(reason) == ("proof" in rule.row):
        return None
    expected = (
        f"the fact that proves it, because it is {rule.severity} and {reason}"
        if reason
        else "none, because its sources are enough"
    )
    return f"proof: expected {expected}, found {rule.row.get('proof', 'none')}"


def _needs_proof(rule: Rule) -> str | None:
    if rule.severity == "info":
        return None
    confidence, read = (
        rule.row["confidence"],
        [one.reads for one in (rule.for_each, rule.when, rule.compare) if one is not None],
    )
    if confidence == "reported" and len(rule.row["sources"]) == 1:
        return "rests on one report"
    if confidence == "inferred" and rule.severity != "warning":
        return "is our own conclusion"
    if any({path[-1]} & counters() or counters() & set(path) for reads in read for path in reads):
        return "reads a counter, which healthy machines have too"
    return None


@cache
def counters() -> frozenset[str]:
    """Names of the numbers that only grow, but for events of the kernel log, which are no rate."""
    return frozenset(
        path.replace("[*]", "").rpartition(".")[2]
        for path, shape in every_fact()
        if shape.counter and not path.startswith("faults.")
    )
