"""`unhang completion SHELL`: prints a script that lets bash, zsh or fish ask this program what can
come next."""

from __future__ import annotations

import argparse

from unhang.core.commands.common_options import add_examples

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
  source <(unhang completion bash)                      in ~/.bashrc
  unhang completion zsh > ~/.zfunc/_unhang              with fpath+=~/.zfunc before compinit in ~/.zshrc
  unhang completion fish > ~/.config/fish/completions/unhang.fish"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_examples(parser, EXAMPLES)
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> int:
    """0."""
    import argcomplete

    print(argcomplete.shellcode(["unhang"], shell=arguments.shell), end="")
    return 0
