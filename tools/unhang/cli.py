"""The command `unhang`: finds the command's module and calls it.

A command's module is imported only when the command is called, so that `unhang --help` stays fast
and a broken command affects no other. Exit codes: 0 done, and nothing found, 1 it
failed, or has findings at or above --fail-on, 2 wrong use, or nothing could be read, 3 not decided
yet, or it waits.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import shlex
import shutil
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from unhang import __version__
from unhang.commands import COMMANDS, FIRST, HIDDEN, RENAMED
from unhang.commands.for_jobs import JOB_READER, LOOK_READER, REFERENCE, node_documents
from unhang.commands.handed_over import HANDED_OVER, keep_ticket
from unhang.commands.names import command_and_arguments, load_command, missing_package
from unhang.core.commands.in_place import ColoursOnly
from unhang.core.errors import UserError
from unhang.core.printing import printing_safely
from unhang.core.schemas.reading import nearest
from unhang.core.secrets_in_text import without_secrets
from unhang.core.text import visible

COULD_NOT_LOOK = 2
LONGEST_LINE = 4000
LONGEST_TYPED = 400  # of the command line in a file of a fault
LAST_LINE = (
    "unhang COMMAND --help has the options. Exit codes: 0 done, nothing found at or above --fail-on"
    ", 1 findings or failed, 2 wrong use or nothing read, 3 not decided yet or waiting."
)
# Options of other commands and tools, and their equivalents here.
OTHER_NAMES = {
    "--only": "--rule", "--node": "--host", "--nodes": "--host", "--nodelist": "--host",
    "--output": "--format", "--json": "--format", "--inventory-file": "--inventory",
    "--quite": "--quiet",
}  # fmt: skip
# what --host was called in some commands; it works, and no help shows it
OLD_HOST = re.compile(r"--(?:limit|hosts)(?==|$)")
# {command: what its run() takes beside the arguments, for which the command's wing knows no other}
HANDED: dict[str, tuple[Any, ...]] = {
    "diagnose": (JOB_READER, LOOK_READER, REFERENCE),
    "inspect": (node_documents,),
    **dict.fromkeys(("audit", "demo", "judge", "report"), (HANDED_OVER,)),
    "plan": (keep_ticket,),
    "remediate": (keep_ticket, lambda words: _run("audit", words)),
}
# they act; who mistypes another option does not mean them
NEVER_GUESSED = ("--apply", "--take-over", "--prune")
NEAR = 0.7
INVALID_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the command."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what can come next
        from unhang.commands.completing import complete

        complete()
    with (
        printing_safely(),
        contextlib.redirect_stdout(ColoursOnly(sys.stdout)),
        contextlib.redirect_stderr(ColoursOnly(sys.stderr)),
    ):
        code = _main(arguments)
        try:
            sys.stdout.flush()
        except OSError as problem:  # a full disk or a closed pipe shows only now, and a code that says `good` would be wrong  # noqa: E501
            _drop_output()
            return (
                COULD_NOT_LOOK
                if isinstance(problem, BrokenPipeError)
                else _say(f"standard output: {problem.strerror}")
            )
        return code


def _drop_output() -> None:
    """Nothing more can be printed to standard output, not even at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main(arguments: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    name = next((one for one in arguments[:1] if not one.startswith("-")), None)
    if name is None:
        top_parser().parse_args(_without_command(arguments) or ["--help"])
        return 0
    if name == "help":
        return _main([*arguments[1:3], "--help"])
    name, rest = command_and_arguments(arguments)
    try:
        return _run(name, rest)
    except UserError as problem:
        return _say(str(problem), getattr(problem, "code", COULD_NOT_LOOK))
    except ModuleNotFoundError as problem:
        return _say(missing_package(problem))
    except BrokenPipeError:  # the reader of the output has ended: `| head`
        _drop_output()
        return COULD_NOT_LOOK
    except OSError as problem:
        where = f" at {problem.filename}" if problem.filename else ""
        return _say(f"{problem.strerror or problem}{where}")
    except KeyboardInterrupt:
        return _say("it was stopped by hand")
    except Exception as problem:
        return _say(_written_down(problem, name, arguments))


def top_parser() -> argparse.ArgumentParser:
    """The parser of `unhang --help` and `unhang --version`."""
    listed = [name for name in COMMANDS if " " not in name]  # the others are in their lines
    width = max(map(len, listed))
    columns, indent = shutil.get_terminal_size().columns, " " * (width + 4)
    lines = [
        textwrap.fill(f"  {name:<{width}}  {COMMANDS[name]}", columns, subsequent_indent=indent)
        for name in listed
    ]
    listing = "\n".join([*lines[:FIRST], "", "more:", *lines[FIRST:]])
    parser = _Parser(
        prog="unhang",
        usage="unhang COMMAND [options]",
        description="Says which rank a hanging job waits for; audits nodes.",
        epilog=f"commands:\n{listing}\n\n{textwrap.fill(LAST_LINE, columns)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"unhang {__version__}")
    return parser


def _without_command(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments of `unhang` itself. If options precede the command, prints that and exits with
    2."""
    at = next((place for place, one in enumerate(arguments) if one in COMMANDS), None)
    if at is not None and not {"-h", "--help", "--version"}.intersection(arguments[:at]):
        typed = shlex.join(["unhang", arguments[at], *arguments[:at], *arguments[at + 1 :]])
        top_parser().error(
            visible(
                f"the command must come first, not {arguments[0]}; did you mean: {typed}",
                LONGEST_LINE,
            )
        )
    return arguments


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the option or the value that was probably meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, with the old names of --host."""
        given = list(args or ())
        if "--host" in self._option_string_actions:
            end = [*given, "--"].index("--")
            given[:end] = [OLD_HOST.sub("--host", one) for one in given[:end]]
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        """Ends with 2, as argparse does."""
        if found := INVALID_CHOICE.search(message):
            known = re.findall(r"[\w-]+", found["known"])
            meant = next(iter(difflib.get_close_matches(found["given"], known, 1)), "")
        else:
            unknown = message.partition("unrecognized arguments: ")[2].split()
            if "--apply" in self._option_string_actions and {"--dry-run", "--check"}.intersection(
                unknown
            ):
                self._refuse(f"{message}; leave it out: nothing is changed without --apply")
            meant = self._meant(unknown)
        hint = f"; {self.prog} --help has the options" if "unrecognized" in message else ""
        self._refuse(f"{message}; did you mean {meant}?" if meant else f"{message}{hint}")

    def _refuse(self, message: str) -> NoReturn:
        """Without argparse's lines of usage, which push the message off the eye's place."""
        self.exit(COULD_NOT_LOOK, f"{self.prog}: error: {message}\n")

    def _meant(self, unknown: Sequence[str]) -> str:
        """The argument that an unknown one probably means; "" if none is similar."""
        option = next((word.partition("=")[0] for word in unknown if word.startswith("--")), None)
        known = [one for one in self._option_string_actions if one not in NEVER_GUESSED]
        if option is not None:
            other = OTHER_NAMES.get(option)
            whole = [one for one in known if one.startswith(option)]
            return (
                other
                if other in known
                else next(iter(whole or difflib.get_close_matches(option, known, 1, NEAR)), "")
            )
        is_host = "--host" in known and unknown and not unknown[0].startswith("-")
        return f"--host {unknown[0]}" if is_host else ""


def _run(name: str, arguments: Sequence[str]) -> int:
    command, parser = command_and_parser(name)
    return int(command.run(parser.parse_args(arguments), *HANDED.get(name, ())))


def command_and_parser(name: str) -> tuple[Any, argparse.ArgumentParser]:
    """The module of a command and the parser of its arguments. Raises UserError for an unknown
    command."""
    if name in RENAMED:
        raise UserError(f"unhang {name} has another name now: {RENAMED[name]}")
    purpose = {**COMMANDS, **HIDDEN}.get(name)
    if purpose is None:
        known = f"; there are {', '.join(COMMANDS)}; see unhang --help"
        raise UserError(f"there is no command {name!r}{nearest(name, COMMANDS) or known}")
    command = load_command(name)
    # no abbreviations: an option of a later version must not change the meaning of a script's
    # abbreviation, least of all of --apply
    parser = _Parser(prog=f"unhang {name}", description=purpose, allow_abbrev=False)
    command.add_arguments(parser)
    return command, parser


def _written_down(problem: Exception, name: str, arguments: Sequence[str]) -> str:
    """A fault of unhang itself in one line; the details are in a file, for a bug report."""
    typed = without_secrets(shlex.join(arguments))[:LONGEST_TYPED]
    details = (
        f"unhang {__version__}, Python"
        f" {sys.version}\n{typed}\n\n{without_secrets(''.join(traceback.format_exception(problem)))}"  # noqa: E501
    )
    first = visible(without_secrets(f"{type(problem).__name__}: {problem}"), 200)
    try:
        handle, path = tempfile.mkstemp(prefix="unhang-fault-", suffix=".txt", text=True)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as target:
            target.write(_cleaned(details))
    except OSError as full:
        return (
            f"a fault of unhang itself: {first}; its details could not be written: {full.strerror}"
        )
    return f"a fault of unhang itself: {first}; please report it with {path}"


def _say(message: str, code: int = COULD_NOT_LOOK) -> int:
    with contextlib.suppress(OSError):  # the terminal was closed
        print(f"unhang: {_cleaned(message)}", file=sys.stderr)
    return code


def _cleaned(message: str) -> str:
    """Lines without control characters: a message quotes what was typed, and text of files and
    nodes."""
    return "\n".join(visible(line, LONGEST_LINE) for line in message.split("\n"))
