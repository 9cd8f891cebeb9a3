"""Files with settings for jobs: the format of each launch path, and unhang's block in a file that
belongs to others.

nccl.conf: NCCL takes the first line that sets a name, so unhang's block comes first. environment:
pam_env takes the last, so the block comes last. All other files belong to unhang. Everything
outside the block is kept byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

# No "=" in a comment: NCCL before 2.26.2 reads a comment with "=" as a setting.
BEGIN = "# BEGIN unhang: settings that the policy of this node asks for"
END = "# END unhang"
WAS_EMPTY = "# This file was here before, with nothing in it"
OWN = "# Written by unhang. Changes by hand are overwritten; say what is wanted in unhang_policy."
FIRST_WORDS = "Written by unhang."  # after any comment sign
BLOCKS = ("nccl_conf", "environment")
FORMATS = (*BLOCKS, "shell", "systemd", "task_prolog", "enroot", "apptainer", "env_file")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


class NotUnderstood(ValueError):
    """Raised for a file that cannot be changed safely, or a setting that cannot be written; the
    text is one line for the operator."""


def check_settings(settings: Mapping[str, str]) -> None:
    """Raises NotUnderstood for a name or a value that no file of environment variables can carry.
    settings: {name: value}."""
    for name, value in settings.items():
        if not _NAME.match(name):
            raise NotUnderstood(f"{name!r} is not a name of an environment variable")
        if any(not character.isprintable() for character in value) or value != value.strip():
            raise NotUnderstood(
                f"the value of {name} must be on one line without blanks around it, and is"
                f" {value!r}"
            )
        if len(name.encode("utf-8")) > 1023 or len(value.encode("utf-8")) > 1023:
            raise NotUnderstood(
                f"the value of {name} has {len(value.encode('utf-8'))} bytes, more than 1023; NCCL"
                " cuts the rest off"
            )


def settled_text(
    before: str | None, form: str, settings: Mapping[str, str], note: str = ""
) -> str | None:
    """The file's text with these settings, None to remove the file. before: its text, or None if
    there is no file. note: one line for a person who reads the file. Empty settings remove unhang's
    block. Raises NotUnderstood."""
    check_settings(settings)
    if form in BLOCKS:
        return _with_block(before, form, _lines(form, settings), note)
    shebang = ["#!/bin/sh"] if form == "task_prolog" else []
    return own_text(before, _lines(form, settings) if settings else [], "#", note, shebang)


def own_text(
    before: str | None,
    lines: Sequence[str],
    sign: str = "#",
    note: str = "",
    shebang: Sequence[str] = (),
) -> str | None:
    """The text of one of unhang's files, None for no lines. sign: begins a comment in it. Raises
    NotUnderstood if somebody else wrote the file."""
    if before is not None and FIRST_WORDS not in before:
        raise NotUnderstood(
            "somebody else wrote this file, which is not unhang's own; move it away after a look"
        )
    comments = [sign + OWN[1:], *([f"{sign} {_comment(note)}"] if note else [])]
    return "\n".join([*shebang, *comments, *lines]) + "\n" if lines else None


def _lines(form: str, settings: Mapping[str, str]) -> list[str]:
    rows = sorted(settings.items())
    if form == "environment":
        return [f"{name}={_pam_quoted(name, value)}" for name, value in rows]
    if form in ("nccl_conf", "enroot", "env_file"):
        return [f"{name}={value}" for name, value in rows]
    if form == "systemd":
        return ["[Service]"] + [
            f'Environment="{name}={_systemd_quoted(value)}"' for name, value in rows
        ]
    if form == "task_prolog":
        return [f"echo {_shell_quoted(f'export {name}={value}')}" for name, value in rows]
    prefix = "APPTAINERENV_" if form == "apptainer" else ""
    return [f"export {prefix}{name}={_shell_quoted(value)}" for name, value in rows]


def _shell_quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def _systemd_quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _pam_quoted(name: str, value: str) -> str:
    """The value in the quotes that pam_env needs: it ends a value at "#" and has no escape
    character (pam_env(8))."""
    if "#" in value or '"' in value:
        raise NotUnderstood(
            f"/etc/environment cannot hold a value with # or quotes, such as the {value!r} of"
            f" {name}"
        )
    return value


def _comment(note: str) -> str:
    return "".join(character if character.isprintable() else " " for character in note).replace(
        "=", " is "
    )


def split_block(text: str) -> tuple[str, list[str] | None, str]:
    """(text before unhang's block, the block's lines or None, text after it). Raises NotUnderstood
    if the lines that begin and end it do not match."""
    lines = text.splitlines(True)
    begins = [number for number, line in enumerate(lines) if line.rstrip("\r\n") == BEGIN]
    ends = [number for number, line in enumerate(lines) if line.rstrip("\r\n") == END]
    if not begins and not ends:
        return text, None, ""
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        place = (begins + ends)[0] + 1
        raise NotUnderstood(
            f"line {place}: the marks {BEGIN!r} and {END!r} do not enclose one block; take them out"
            " by hand"
        )
    inside = [line.rstrip("\r\n") for line in lines[begins[0] + 1 : ends[0]]]
    return "".join(lines[: begins[0]]), inside, "".join(lines[ends[0] + 1 :])


def _with_block(before: str | None, form: str, lines: list[str], note: str) -> str | None:
    head, inside, tail = split_block(before or "")
    others = head + tail
    was_empty = (before == "" and inside is None) or (inside is not None and WAS_EMPTY in inside)
    if not lines:
        return others if others or was_empty else None
    comments = (["# " + _comment(note)] if note else []) + ([WAS_EMPTY] if was_empty else [])
    block = "\n".join([BEGIN, *comments, *lines, END]) + "\n"
    if form == "nccl_conf":
        return block + others
    return others + ("" if not others or others.endswith("\n") else "\n") + block


def hand_written(text: str) -> list[tuple[int, str]]:
    """[(line number, line)] outside unhang's block, without comments and empty lines. Raises
    NotUnderstood."""
    rows, inside = [], False
    split_block(text)
    for number, line in enumerate(text.splitlines(), 1):
        if line == BEGIN:
            inside = True
        elif line == END:
            inside = False
        elif not inside and line.strip() and not line.lstrip().startswith("#"):
            rows.append((number, line))
    return rows
