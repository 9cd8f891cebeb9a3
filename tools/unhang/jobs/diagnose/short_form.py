"""A diagnosis in the short form `unhang/evidence-short/1`. Document in, document out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.core.verdict.waited_rows import groups_of
from unhang.jobs.diagnose.first_screen import screen_of
from unhang.jobs.diagnose.rendering import facts_in_words, remedy_in_words


def short_form(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """What render_short_evidence() cuts and prints."""
    facts, causes = diagnosis["facts"], diagnosis["causes"]
    screen = screen_of(diagnosis)
    named = [one for one in causes if one["severity"] != "info"]
    waited = diagnosis.get("waited_for")
    failures = facts.get("failures", [])
    return {
        "by": "diagnose",
        "verdict": {
            "word": diagnosis["outcome"]["word"],
            "headline": screen.headline,
            "certainty": screen.certainty.partition(",")[0] or None,
        },
        "waited_for": waited,
        "groups": groups_of(waited),
        "primary": [_failure(one) for one in failures if one["primary"]],
        "consequences": [_failure(one) for one in failures if not one["primary"]],
        "causes": [_cause(one) for one in named],
        "next": diagnosis["next"],
        "facts": list(_facts(facts)),
        "read": [
            {"what": one["file"], "kind": one["kind"], "lines": one["lines"]}
            for one in diagnosis["inputs"]
            if one["kind"] not in ("unread", "binary")
        ],
        "not_read": [
            *(
                {"what": one["file"], "why": "; ".join(one["notes"]) or one["kind"]}
                for one in diagnosis["inputs"]
                if one["kind"] in ("unread", "binary")
            ),
            *({"what": one, "why": "not among the inputs"} for one in diagnosis["not_given"]),
        ],
    }


def joined_short_forms(look: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The short form of a diagnosis of a look's logs, with what the look saw before it."""
    joined = ("groups", "primary", "consequences", "facts", "read", "not_read")
    return {
        **own,
        "waited_for": own["waited_for"] or look["waited_for"],
        "causes": [*own["causes"], *look["causes"]],
        **{name: [*look[name], *own[name]] for name in joined},
    }


def _failure(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in ("text", "file", "line", "rank", "host")}


def _cause(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cause": one["cause"],
        "title": one["title"],
        "certainty": one["certainty"],
        "owner": one["owner"],
        "where": one["where"],
        "lines": [
            {"file": line["file"], "line": line["line"], "text": line["text"]}
            for line in one["evidence"]
        ],
        "remedy": remedy_in_words(one["remedy"]),
    }


def _facts(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Facts with their lines where they have one of their own; then the others in words."""
    for name, values in (
        *facts["versions"].items(), ("GPU", facts["gpus"]), ("transport", facts["transports"]),
        ("network", facts["network"]["chosen"]), ("bootstrap", facts["network"]["bootstrap"]),
    ):  # fmt: skip
        for one in values:
            yield {"name": name, "value": one["value"], "file": one["file"], "line": one["line"]}
    for one in facts["settings"]:
        yield {"name": one["name"], "value": one["value"], "file": one["file"], "line": one["line"]}
    none: dict[str, Any] = {**{name: [] for name in facts["network"]}, "gpudirect_rdma": None}
    apart = {**facts, "versions": {}, "gpus": [], "transports": [], "settings": [],
             "network": none, "first_error": None}  # fmt: skip
    for line in facts_in_words(apart, ""):
        name, _, value = line.partition(": ")
        if value:
            yield {"name": name, "value": value, "file": None, "line": None}
