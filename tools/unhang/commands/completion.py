"""`unhang completion SHELL`: prints a script that completes commands, options and values in bash or zsh, made from the commands' own parsers."""

from __future__ import annotations

import argparse
import importlib

from unhang.commands import COMMANDS
from unhang.commands.common_options import add_examples
from unhang.commands.completion_scripts import Command, bash_script, command_of, zsh_script

EXAMPLES = """\
  source <(unhang completion bash)                      in ~/.bashrc
  unhang completion zsh > ~/.zfunc/_unhang              with fpath+=~/.zfunc before compinit in ~/.zshrc"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for the shell."""
    add_examples(parser, EXAMPLES)
    parser.add_argument("shell", choices=("bash", "zsh"))


def run(arguments: argparse.Namespace) -> int:
    """0."""
    script = {"bash": bash_script, "zsh": zsh_script}[arguments.shell]
    print(script([_read(name, purpose) for name, purpose in COMMANDS.items()]), end="")
    return 0


def _read(name: str, purpose: str) -> Command:
    parser = argparse.ArgumentParser(prog=f"unhang {name}")
    importlib.import_module(f"unhang.commands.{name}").add_arguments(parser)
    return command_of(name, purpose, parser)
