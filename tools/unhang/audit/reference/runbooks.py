"""The page of run books, from the catalogue's causes and signatures: symptoms, reason, deciding evidence, commands, and how to undo them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unhang.audit.reference.causes import flat
from unhang.audit.rules.compiled_catalogue import Catalogue
from unhang.core import catalogue
from unhang.core.catalogue.signature_files import signature_files

HEAD = """# Run books

One for each cause that `unhang diagnose` can name. This page is written from the rows in `tools/unhang/core/catalogue/` (`make manual`).
[causes](causes.md) has them in one table, [remediation](remediation.md) says what the commands below do and refuse.

In the commands INVENTORY is your inventory and HOST the node. What changes a node previews unless it is told to act. Where an audit found it,
`unhang remediate RUN --rule RULE --host HOST`, as the audit prints it, does the same with a plan.

"""
MOST_LINES = 3
LONGEST_LINE = 200
STRENGTHS = ("decisive", "strong", "supporting")  # a line that is only weak evidence is not a symptom of the cause


def render_runbooks(loaded: Catalogue) -> str:
    """runbooks.md: one for each cause."""
    causes = sorted((row for _path, content in catalogue.checked_files("causes", "cause-1") for row in content["causes"]), key=lambda row: row["id"])
    signatures = [row for _path, content in signature_files() for row in content["signatures"]]
    titles = {rule.id: rule.row["title"] for rule in loaded.rules}
    listing = ", ".join(f"[{row['id']}](#{row['id']})" for row in causes)
    return HEAD + listing + "\n" + "".join(_book(row, lines_of(row["id"], signatures), titles) for row in causes)


def lines_of(cause: str, signatures: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(program, a line of its log) of the cause's signatures, the strongest first, if possible of different programs."""
    rows = [(STRENGTHS.index(strength), row) for row in signatures if (strength := (row.get("for") or {}).get(cause)) in STRENGTHS]
    found: dict[str, str] = {}
    for _, row in sorted(rows, key=lambda one: one[0]):
        line = next((one for one in row["examples"]["match"] if len(one) <= LONGEST_LINE and "\n" not in one), None)
        if line and line not in found:
            found[line] = str(row.get("says") or "")
    return [(says, line) for line, says in list(found.items())[:MOST_LINES]]


def _book(row: Mapping[str, Any], lines: Sequence[tuple[str, str]], titles: Mapping[str, str]) -> str:
    parts = [f"\n## {row['id']}\n\n{_text(row['title'])}.\n\n**What you see.**\n\n", *_seen(row, lines, titles)]
    parts.append(f"\n**Why.** {_sentence(row['means'])}\n\n**What decides it** where the log does not:\n\n")
    parts += [_check(one) for one in row["collect"]]
    parts += ["\n**What to do.**\n\n", *_do(row), "\n**How to undo it.**\n\n", *_undo(row)]
    parts.append("\nSources: " + ", ".join(f"<{one['url']}> ({_text(one['says'])})" for one in row["sources"]) + "\n")
    return "".join(parts)


def _seen(row: Mapping[str, Any], lines: Sequence[tuple[str, str]], titles: Mapping[str, str]) -> Iterator[str]:
    for says, line in lines:
        yield f"{_sentence(says)}\n\n```text\n{line}\n```\n\n"
    known = [rule for rule in row.get("rules", ()) if rule in titles]
    if known:
        yield "`unhang audit` finds on the node:\n\n"
        yield from (f"- {_text(titles[rule])} ([{rule}](rules.md#{rule}))\n" for rule in known)
    elif not lines:
        yield "No line names it, and no fact of the node shows it: it is what is left when the others are ruled out.\n"


def _do(row: Mapping[str, Any]) -> Iterator[str]:
    remedy = row["remedy"]
    if role := remedy.get("role"):
        wanted = ", ".join(f"`{name}: {value}`" for name, value in flat(remedy.get("variables") or {}))
        says = f"with {wanted} in `unhang_policy`" if wanted else "with what `unhang_policy` says"
        yield f"The role [{role}](roles.md) {says} brings the node there:\n\n"
        yield f"```console\n$ unhang playbook remediate -i INVENTORY --limit HOST -e unhang_roles={role}\n"
        yield f"$ unhang playbook remediate -i INVENTORY --limit HOST -e unhang_roles={role} -e unhang_apply=true\n```\n\n"
    if person := remedy.get("person"):
        yield f"{'Besides' if role else 'A person has to'}: {_text(person)}.\n"
    if workaround := row.get("workaround"):
        yield f"\nUntil then: `{workaround['what']}`. It costs: {_text(workaround['cost'])}.\n"


def _undo(row: Mapping[str, Any]) -> Iterator[str]:
    if row["remedy"].get("role"):
        yield "The role saved what it changed; the first command says what would come back, the second brings it back:\n\n"
        yield "```console\n$ unhang playbook rollback -i INVENTORY --limit HOST\n"
        yield "$ unhang playbook rollback -i INVENTORY --limit HOST -e unhang_apply=true\n```\n\n"
    if row["remedy"].get("person"):
        yield "What a person changes is not recorded by unhang: note the setting as it was, and set it back by the same way.\n"
    if row.get("workaround"):
        yield "The workaround ends where it was set: take it out of the job's script or settings.\n"


def _check(one: str) -> str:
    """A command and, behind a colon, what it shows: only the command is code, because people copy it."""
    command, colon, shows = one.partition(": ")
    return f"- `{command}`{colon}{_text(shows)}\n" if _is_command(command) else f"- {_text(one)}\n"


def _is_command(text: str) -> bool:
    return text.split()[0] in ("sudo", "cat", "dmesg", "nvidia-smi", "lspci", "systemctl", "tail", "python", "ls", "df", "ip", "ulimit") and " and " not in text


def _sentence(text: str) -> str:
    text = _text(text)
    return f"{text[:1].upper()}{text[1:]}."


def _text(text: str) -> str:
    return " ".join(str(text).split()).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
