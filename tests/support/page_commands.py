"""The commands that README.md, docs/ and the pages of the roles show for typing."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)```(?:console|sh|bash|shell)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
ONE_ROLE = re.compile(r"^unhang_roles=[a-z_]+$")
TYPED = re.compile(r"""\bas_typed\(\s*"([^"\n]+)\"""")  # documented_command.py
OPERATORS = (">", ">>", "|", "<", "||", "&&", "2>&1")


@dataclass(frozen=True)
class Typed:
    """page: relative to the project; argv: without comment, redirection and pipe; text: the unchanged line."""

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
        """The command in one line; the role that it names becomes ROLE, because the commands of roles differ in nothing else."""
        words = (ONE_ROLE.sub("unhang_roles=ROLE", word) for word in self.argv[1:])
        return " ".join((self.program, *(shlex.quote(word) if " " in word else word for word in words)))


def pages():
    """Every page for users."""
    found = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").rglob("*.md"), *(PROJECT / "roles").glob("*/README.md")]
    return sorted(found)


def commands():
    """Each command of each page, once per page."""
    found = {}
    for page in pages():
        for _, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in lines_of(block):
                argv = argv_of(line)
                if argv:
                    name = str(page.relative_to(PROJECT))
                    found[(name, argv)] = Typed(name, argv, line)
    return list(found.values())


def typed_in_tests():
    """{form: the test file that runs it}, from the calls of as_typed."""
    folder = PROJECT / "tests"
    return {form: str(path.relative_to(PROJECT)) for path in sorted(folder.rglob("test_*.py")) for form in TYPED.findall(path.read_text(encoding="utf-8"))}


def scripts():
    """(page, text) of each block that is a complete script."""
    return [(str(page.relative_to(PROJECT)), block) for page in pages() for _, block in BLOCK.findall(page.read_text(encoding="utf-8")) if is_script(block)]


def is_script(block):
    """Whether a block is the text of a script, and not commands to type."""
    return block.lstrip().startswith("#!")


def lines_of(block):
    """Commands of a block: the lines with a prompt where there is one, else every line; continued lines joined. None for a script."""
    if is_script(block):
        return []
    joined = re.sub(r"\\\n\s*", " ", block)
    lines = [line.strip() for line in joined.splitlines()]
    prompted = [line[2:] for line in lines if line.startswith("$ ")]
    return prompted or [line for line in lines if line and not line.startswith("#")]


def argv_of(line):
    """The arguments of a command, without settings before it, sudo, a comment, redirections and pipes."""
    argv = shlex.split(line, comments=True)
    end = next((at for at, word in enumerate(argv) if word in OPERATORS or word.startswith(("<(", ">("))), len(argv))
    argv = argv[:end] if end else argv
    while argv and (re.fullmatch(r"[A-Z_]+=.*", argv[0]) or argv[0] == "sudo"):
        argv = argv[1:]
    return tuple(argv)


# The commands that test_commands_that_act.py runs one by one: audits that send nothing to other machines.
AUDITS = sorted(
    {one.form for one in commands() if one.program == "unhang" and one.argv[1] in ("audit", "collect") and not {"--webhook", "--hook"} & {*one.argv}}
)
