"""`unhang collect`: prints the facts of this machine as one JSON document, with the collector of
the Ansible module and of unhang-collect.pyz."""

from __future__ import annotations

import argparse

from unhang.core.commands.common_options import add_examples
from unhang_node.facts.command import add_options, chosen_options, write_document

EXAMPLES = """\
  unhang collect > node.json                      the facts of this machine
  unhang collect | unhang judge -                 what is wrong with it
  unhang collect --gather-subset driver,gpus      two sections alone"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    add_examples(parser, EXAMPLES)


def run(args: argparse.Namespace) -> int:
    """0 with a document on stdout, 2 if the options are invalid or stdout cannot be written."""
    return write_document({**chosen_options(args), "collected_via": "local"})
