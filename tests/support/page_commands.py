"""What README.md, docs/ and the pages of the roles show: commands for typing, and outputs that a
test compares with real ones."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)```(?:console|sh|bash|shell)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
ONE_ROLE = re.compile(r"^unhang_roles=[a-z_]+$")
# Commands that only read files: tests/shipped/test_commands_in_pages.py runs each of them.
READS = (
    "diagnose",
    "lint",
    "explain",
    "catalogue",
    "judge",
    "report",
    "plan",
    "history",
    "completion",
    "policy",
    "demo",
)
OPERATORS = (">", ">>", "|", "<", "||", "&&", "2>&1")


@dataclass(frozen=True)
class Typed:
    """page: relative to the project; argv: without comment, redirection and pipe; text: the
    unchanged line."""

    page: str
    argv: tuple
    text: str

    def __str__(self):
        return f"{self.page}: {' '.join(self.argv)}"

    @property
    def program(self):
        """Its name, without its path."""
        return Path(self.argv[0]).name

    @property
    def form(self):
        """The command in one line; the role that it names becomes ROLE, because the commands of
        roles differ in nothing else."""
        words = (ONE_ROLE.sub("unhang_roles=ROLE", word) for word in self.argv[1:])
        return " ".join(
            (self.program, *(shlex.quote(word) if " " in word else word for word in words))
        )


def pages():
    """Every page for users."""
    found = [
        PROJECT / "README.md",
        PROJECT / "CONTRIBUTING.md",
        *(PROJECT / "docs").rglob("*.md"),
        *(PROJECT / "roles").glob("*/README.md"),
    ]
    return sorted(found)


def commands():
    """Each command of each page, once per page."""
    return [
        Typed(page, argv_of(text), text)
        for page, texts in shown()["commands"].items()
        for text in texts
    ]


@functools.cache
def shown():
    """{kind: what the pages show of it}: commands by page, outputs, files of the example of a role,
    names of metrics."""
    page = {
        name: (PROJECT / name).read_text(encoding="utf-8")
        for name in ("README.md", "CONTRIBUTING.md", "docs/situations.md", "docs/metrics.md")
    }
    return {
        "commands": commands_in_pages(),
        "demo": page["README.md"].partition("$ make demo\n")[2].partition("```")[0].splitlines(),
        "situations": [
            part.removeprefix("text\n") for part in page["docs/situations.md"].split("```")[1::2]
        ],
        "role": dict(
            re.findall(
                r"```yaml\n# (roles/swappiness/\S+)\n(.*?)```", page["CONTRIBUTING.md"], re.DOTALL
            )
        ),
        "metrics": sorted(set(re.findall(r"`(unhang_\w+)`", page["docs/metrics.md"]))),
    }


def commands_in_pages():
    """{page: its lines with a command, each command once}."""
    found, texts = (
        {},
        {str(page.relative_to(PROJECT)): page.read_text(encoding="utf-8") for page in pages()},
    )
    for page, text in texts.items():
        lines = [line for _, block in BLOCK.findall(text) for line in lines_of(block)]
        found[page] = list(
            {argv: line for line in reversed(lines) if (argv := argv_of(line))}.values()
        )[::-1]
    return {page: lines for page, lines in found.items() if lines}


def typed_in_tests():
    """{form: the test file that runs it}, from the calls of as_typed."""
    folder = PROJECT / "tests"
    return {
        form: str(path.relative_to(PROJECT))
        for path in sorted(folder.rglob("test_*.py"))
        for form in typed_in(path.read_text(encoding="utf-8"))
    }


def typed_in(source):
    """The commands that a test file gives to as_typed (documented_command.py)."""
    if "as_typed(" not in source:
        return []
    return [
        node.args[0].value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "as_typed"
        and isinstance(node.args[0], ast.Constant)
    ]


def scripts():
    """(page, text) of each block that is a complete script."""
    return [
        (str(page.relative_to(PROJECT)), block)
        for page in pages()
        for _, block in BLOCK.findall(page.read_text(encoding="utf-8"))
        if is_script(block)
    ]


def is_script(block):
    """Whether a block is the text of a script, and not commands to type."""
    return block.lstrip().startswith("#!")


def lines_of(block):
    """Commands of a block: the lines with a prompt where there is one, else every line; continued
    lines joined. None for a script."""
    if is_script(block):
        return []
    joined = re.sub(r"\\\n\s*", " ", block)
    lines = [line.strip() for line in joined.splitlines()]
    prompted = [line[2:] for line in lines if line.startswith("$ ")]
    return prompted or [line for line in lines if line and not line.startswith("#")]


def argv_of(line):
    """The arguments of a command, without settings before it, sudo, a comment, redirections and
    pipes."""
    argv = shlex.split(line, comments=True)
    end = next(
        (at for at, word in enumerate(argv) if word in OPERATORS or word.startswith(("<(", ">("))),
        len(argv),
    )
    argv = argv[:end] if end else argv
    while argv and (re.fullmatch(r"[A-Z_]+=.*", argv[0]) or argv[0] == "sudo"):
        argv = argv[1:]
    return tuple(argv)


def audits():
    """The commands that test_commands_that_act.py runs one by one: audits by Ansible that send
    nothing to other machines."""
    own = [
        one for one in commands() if one.program == "unhang" and one.argv[1] in ("audit", "collect")
    ]
    return sorted(
        {
            one.form
            for one in own
            if not {"--webhook", "--hook", "--via", "--continue"} & {*one.argv}
        }
    )
