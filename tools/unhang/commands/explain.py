"""`unhang explain ID`: what is known about a rule, an Xid or SXid, a variable, a version, a GPU
model, a fact or a cause, with sources."""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unhang.core.commands.common_options import add_examples, add_format_option, add_rules
from unhang.core.errors import UserError
from unhang.core.limits import Limits, Stopped, run_limited
from unhang.core.text import wrapped
from unhang.judge.reference.explain import CONDITION, Topic, explain, names_among
from unhang.judge.reference.nearness import suggestions
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.values import printable

HOW_TO_ASK = (
    "`unhang catalogue` lists everything, `unhang explain --help` shows how to ask, `unhang"
    " diagnose LOG` reads a log"
)
MOST_MESSAGES, LEAST_OF_A_MESSAGE = 3, 3  # signatures that are shown; words of a piece of a message
MOST_TEXTS = 3  # of one label; one more takes no more lines than to say that there is one
LEAST_WORDS = 2  # words that an error text has at least
NARROW, WIDE = 40, 160
# half of the rules have less than 160 letters
LONGEST_EXPRESSION, CUT = 400, " … (-v shows all of it)"
EXAMPLES = """\
  unhang explain xid 79                     what an Xid means and what to do about it
  unhang explain nccl-p2p-disabled          why a rule found something, with its sources
  unhang explain nccl-p2p-disabled -v       its whole expressions and the facts that it reads
  unhang explain NCCL_P2P_LEVEL xid 94      what a variable does, and another name
  unhang explain "GPU has fallen off the bus"   the causes that an error's text alone points to
  unhang explain driver 535.154.05 -o json  what is known of a version"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = (
        "a rule's id, xid 79, sxid 20034, NCCL_P2P_LEVEL, driver 535.154.05, 535, nccl 2.21.5,"
        " torch 2.9.1, cuda 12.8, H100, gpus.count, acs_iommu"
    )
    parser.add_argument(
        "id",
        nargs="+",
        metavar="ID",
        help=f"{examples}; a role, a policy key; several names, or an error's text",
    )
    add_format_option(parser, ("table", "json"))
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show all of it: whole texts, what each source says, the facts that a rule reads",
    )
    add_rules(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0. Raises UserError if nothing with that name is known."""
    asked = " ".join(arguments.id)
    folders = [Path(one) for one in arguments.rules]
    found = run_limited(lambda mark: _explained(list(arguments.id), folders), Limits())
    if isinstance(found, Stopped):
        raise UserError(f"explaining was stopped: it used up its {found.by}")
    topics, unknown, faults = found
    for fault in faults:
        print(printable(fault), file=sys.stderr)
    if topics:
        _print(asked, topics, arguments.format, arguments.verbose)
    if unknown:
        named = ", ".join(f"{printable(word)!r}{hint}" for word, hint in unknown)
        separator = "\n" if "\n" in named else "; "
        raise UserError(f"nothing is known of {named}{separator}{HOW_TO_ASK}")
    return 0


def _print(asked: str, topics: list[dict[str, Any]], form: str, verbose: bool) -> None:
    if form == "json":
        print(json.dumps({"asked": asked, "topics": topics}, ensure_ascii=False, indent=1))
    else:
        width = min(max(shutil.get_terminal_size((100, 24)).columns, NARROW), WIDE)
        print("\n\n".join(_text(topic, width, verbose) for topic in topics))


def _explained(
    words: list[str], folders: list[Path]
) -> tuple[list[dict[str, Any]], list[tuple[str, str]], list[str]]:
    """(topics, unknown names with a hint, faults of the rules): for the words as one name, else for
    each word as a name, else for the words as an error's text."""
    catalogue = load_catalogue(folders)
    faults = list(catalogue.faults)
    asked = " ".join(words)
    if topics := explain(catalogue, asked):
        return [asdict(topic) for topic in topics], [], faults
    names = names_among(words)
    found = {name: explain(catalogue, name) for name in names}
    unknown = [name for name in names if not found[name]]
    # `slow gpu`, though `gpu` is a name too
    is_phrase = unknown and all(word.isalpha() and word.islower() for word in words)
    if len(names) > 1 and 2 * len(unknown) <= len(names) and not is_phrase:
        return (
            [asdict(topic) for name in names for topic in found[name]],
            [(name, suggestions(catalogue, name)) for name in unknown],
            faults,
        )
    if topics := list(_causes(asked)):
        return [asdict(topic) for topic in topics], [], faults
    return [], [(asked, suggestions(catalogue, asked))], faults


def _causes(text: str) -> Iterator[Topic]:
    """The causes that `unhang diagnose` finds in an error's text, without remarks."""
    if len(text.split()) < LEAST_WORDS:
        return
    # imported here, because it takes 0.3 s, which a name does not need
    from unhang.jobs.diagnose.diagnosing import diagnose_text
    from unhang.jobs.diagnose.matching.signatures import load_signatures
    from unhang.jobs.diagnose.next_steps import row_of
    from unhang.jobs.diagnose.rendering import remedy_in_words

    found = diagnose_text(text)
    more = ("next", "unhang diagnose LOG reads the whole log, which may say more")
    named = [
        cause for cause in found["causes"] if cause["severity"] != "info" and cause["evidence"]
    ]
    for cause in named:
        sure = f"{cause['certainty']}, by this text alone"
        lines = (
            ("read as", cause["means"]),
            ("how sure", sure),
            ("do", remedy_in_words(cause["remedy"])),
            more,
        )
        yield Topic(
            "cause",
            cause["cause"],
            cause["title"],
            lines,
            cause["confidence"],
            tuple(cause["sources"][:3]),
        )
    error, family = (
        found["facts"].get("first_error"),
        row_of(text) or row_of(f"NCCL {text}"),  # NCCL's own words, without what it puts before
    )
    if (error or family) and not named:
        usual = "; ".join(cause["title"] for cause in found["causes"])
        words = (
            (
                ("words mean", family["means"]),
                ("run", family["run"]),
                *(("if it shows", one) for one in family["tells"]),
            )
            if family
            else ()
        )
        remarks = (
            ("names", "no cause by itself"),
            *([("usual causes", usual)] if usual else []),
            *words,
            more,
        )
        yield Topic(
            "message",
            "error message",
            error["says"] if error else "the words of an error that many programs print",
            remarks,
            "inferred",
            (),
        )
    elif (
        not named and len(text.split()) >= LEAST_OF_A_MESSAGE
    ):  # a piece of a known message, without what is around it in a log
        wanted = " ".join(text.lower().split())
        known = [
            row
            for row in load_signatures()
            if any(wanted in " ".join(one.lower().split()) for one in row.examples.get("match", ()))
        ]
        for row in known[:MOST_MESSAGES]:
            causes = tuple(
                ("can mean", f"{cause} ({strength}); unhang explain {cause}")
                for cause, strength in row.for_.items()
            )
            yield Topic(
                "message",
                row.id,
                row.says,
                (("printed by", row.program), *causes, more),
                row.confidence,
                row.sources[:3],
            )


def _text(topic: dict[str, Any], width: int, verbose: bool) -> str:
    lines = wrapped(printable(f"{topic['id']}: {topic['title']}"), width, 2)
    for name, rows in itertools.groupby(topic["lines"], lambda row: row[0]):
        texts = [text for _, text in rows]
        if not verbose and len(texts) > MOST_TEXTS + 1:
            texts[MOST_TEXTS:] = [f"… and {len(texts) - MOST_TEXTS} more (-v shows all)"]
        for label, text in itertools.zip_longest([f"{name}:"], texts, fillvalue=""):
            lines += _wrapped(label, text, width)
    for name, text in topic["expressions"]:
        if verbose or name in CONDITION:
            lines += _wrapped(
                f"{name}:",
                text if verbose else textwrap.shorten(text, LONGEST_EXPRESSION, placeholder=CUT),
                width,
            )
    lines += _wrapped("confidence:", topic["confidence"], width) if topic["confidence"] else []
    for source in topic["sources"]:
        lines += _wrapped(
            "source:", f"{source['url']} {source.get('says', '') if verbose else ''}", width
        )
    return "\n".join(lines)


def _wrapped(name: str, text: str, width: int) -> list[str]:
    line = " ".join(printable(str(text).replace("\n", " ")).split())
    return wrapped(line, width, 17, f"  {name:<14} ")
