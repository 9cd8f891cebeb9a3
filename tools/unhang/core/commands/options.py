"""What a command was asked to do: argparse's namespace is read once, where the command begins, into
a frozen value of a subclass of Options, and everything behind it takes that value."""

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
