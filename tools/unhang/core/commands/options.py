"""What a command was asked to do: argparse's namespace is read once, where the command begins, into
a frozen value of a subclass of Options, and everything behind it takes that value.

A namespace has any attribute as Any, so that mypy sees no misspelt option and no None. What the
command line hands to a command beside its options is a parameter of its run() (HANDED in cli.py).
No parser is made from the struct: help texts, choices and groups would have to be annotations."""

from __future__ import annotations

import argparse
from typing import Self

import msgspec


class Options(msgspec.Struct, frozen=True):
    """Each field is an option, under argparse's name of it."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Self:
        """Takes the fields' options; argparse has checked them, so a value of another type than its
        field is a mistake of the program and raises msgspec.ValidationError."""
        return msgspec.convert(arguments, cls, from_attributes=True)
