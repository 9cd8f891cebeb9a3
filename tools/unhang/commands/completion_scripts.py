"""Writes the completion scripts of bash and zsh from the commands' parsers. Values in, text out."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

PATHS = re.compile(r"PATH|FILE|DIR|FOLDER|LOG|RUN|PLAN|INVENTORY|RECORD|IMAGE")  # kinds of values that may be a file, including ""


@dataclass(frozen=True)
class Option:
    """names: () for a positional argument; choices: its allowed values; takes: the name of its value, "" for a flag."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    takes: str
    help_text: str
    repeatable: bool


@dataclass(frozen=True)
class Command:
    """One command of `unhang`."""

    name: str
    purpose: str
    options: tuple[Option, ...]


def command_of(name: str, purpose: str, parser: argparse.ArgumentParser) -> Command:
    """The command of a parser, with its options."""
    return Command(name, purpose, tuple(_option(action) for action in parser._actions if action.help != argparse.SUPPRESS))


def _option(action: argparse.Action) -> Option:
    takes = "" if action.nargs == 0 else str(action.metavar or action.dest)
    repeatable = isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+", argparse.REMAINDER)
    help_text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return Option(tuple(action.option_strings), tuple(map(str, action.choices or ())), takes, help_text, repeatable)


def bash_script(commands: Sequence[Command]) -> str:
    """For bash 4 and newer; for unknown values bash completes files."""
    values, names, places = [], [], []
    for command in commands:
        for option in command.options:
            if option.choices and option.names:
                values.append(f"    {' | '.join(f'{command.name}:{name}' for name in option.names)}) words='{' '.join(option.choices)}' ;;")
            elif option.takes and option.names:
                values.append(f"    {' | '.join(f'{command.name}:{name}' for name in option.names)}) return ;;")
        names.append(f"    {command.name}) words='{' '.join(name for option in command.options for name in option.names)}' ;;")
        first = next((option for option in command.options if not option.names and option.choices), None)
        places += [f"    {command.name}) words='{' '.join(first.choices)}' ;;"] if first else []
    return _BASH.format(
        commands=" ".join(command.name for command in commands), values="\n".join(values), names="\n".join(names), places="\n".join(places)
    )  # fmt: skip


_BASH = """# Completion of unhang for bash: source <(unhang completion bash)
_unhang() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{commands} --help --version" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}:${{COMP_WORDS[COMP_CWORD - 1]}}" in
{values}
  esac
  if [[ -z $words && $current == -* ]]; then
    case "${{COMP_WORDS[1]}}" in
{names}
    esac
  elif [[ -z $words ]]; then
    case "${{COMP_WORDS[1]}}" in
{places}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o bashdefault -o default -F _unhang unhang
"""


def zsh_script(commands: Sequence[Command]) -> str:
    """For zsh's compinit, with each option's help."""
    listing = "\n".join(f"    {_quoted(f'{command.name}:{command.purpose}')}" for command in commands)
    cases = "\n".join(f"    ({command.name}) _arguments -s {' '.join(_zsh_spec(option) for option in command.options)} ;;" for command in commands)
    return _ZSH.format(listing=listing, cases=cases)


def _zsh_spec(option: Option) -> str:
    action = f"({' '.join(option.choices)})" if option.choices else "_files" if PATHS.search(option.takes) else " "
    value = f":{_plain(option.takes)}:{action}" if option.takes else ""
    if not option.names:
        return _quoted(f"{'*' if option.repeatable else ''}{value}")
    shown = f"[{_plain(option.help_text)}]{value}"
    if option.repeatable:
        return " ".join(_quoted(f"*{name}{shown}") for name in option.names)
    if len(option.names) == 1:
        return _quoted(option.names[0] + shown)
    return f"'({' '.join(option.names)})'{{{','.join(option.names)}}}{_quoted(shown)}"


def _plain(help_text: str) -> str:
    """The help text without characters that end a part of a zsh specification."""
    return " ".join(re.sub(r"[\[\]:\\\\]", " ", help_text).split())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_ZSH = """#compdef unhang
# Completion of unhang for zsh: unhang completion zsh > a file named _unhang in a folder of $fpath
_unhang() {{
  local -a commands
  commands=(
{listing}
  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  local name=$words[2]
  shift words
  ((CURRENT--))
  case $name in
{cases}
  esac
}}
if [[ $funcstack[1] == _unhang ]]; then
  _unhang "$@"
else
  compdef _unhang unhang
fi
"""
