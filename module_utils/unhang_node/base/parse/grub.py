"""GRUB's generated grub.cfg, its environment block, and boot loader entries: which kernel the next
boot would take."""

from __future__ import annotations

import re

from ..named_tuple import NamedTuple
from .values import parse_assignments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Entry(NamedTuple):
    """An entry of GRUB's menu. kernel: path of the image, where it has one; children: the entries
    of a submenu, None for an entry that is no submenu."""

    title: str
    identifier: str
    kernel: str | None
    children: list[Entry] | None


ENTRY_LIMIT = 4096
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"|(\S+)")


def split_words(line: str) -> list[str]:
    """The words of one line of grub.cfg, without quotes."""
    return [single or double or bare for single, double, bare in _QUOTED.findall(line[:8192])]


def parse_menu(text: str) -> list[Entry]:
    """[Entry] of grub.cfg in the order of the file. Other blocks (functions, if) are skipped."""
    top: list[Entry] = []
    stack: list[list[Any] | None] = []
    count = 0
    for raw in text.splitlines():
        line = raw.strip()
        first = line.partition(" ")[0]
        if line.endswith("{") and first in ("menuentry", "submenu") and count < ENTRY_LIMIT:
            words = split_words(line)
            stack.append(
                [
                    words[1] if len(words) > 1 else "",
                    identifier_of(words),
                    None,
                    [] if first == "submenu" else None,
                ]
            )
            count += 1
        elif line.endswith("{"):
            stack.append([])
        elif line == "}" and stack:
            closed = stack.pop()
            if closed:
                parent = next(
                    (each for each in reversed(stack) if each and each[3] is not None), None
                )
                (parent[3] if parent else top).append(Entry(*closed))
        elif first.startswith("linux") and stack and stack[-1] and stack[-1][2] is None:
            words = split_words(line)
            stack[-1][2] = words[1] if len(words) > 1 else None
    return top


def identifier_of(words: list[str]) -> str:
    """The entry's id: what follows --id or $menuentry_id_option, or ""."""
    for option in ("--id", "$menuentry_id_option"):
        if option in words[:-1]:
            return words[words.index(option) + 1]
    return ""


def parse_default(text: str) -> str | None:
    """The value of `set default=` for an ordinary boot (not the one-shot branch): "0", "saved" for
    ${saved_entry}, an id; None if not set."""
    found = None
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("set default="):
            value = line[len("set default=") :].strip().strip("\"'")
            if "next_entry" in value:
                continue
            # 00_header sets it in its first branch; a later file that sets it overrides it on
            # purpose.
            found = "saved" if "saved_entry" in value else value
    return found


def parse_grubenv(data: bytes) -> dict[str, str]:
    """{name: value} of GRUB's environment block (1024 bytes, lines, padded with #)."""
    return parse_assignments(data[:65536].decode("utf-8", "replace"))


def find_entry(menu: list[Entry], choice: str) -> Entry | None:
    """The Entry that GRUB takes for `choice` ("0", "1>2", a title or an id, ">" between levels), or
    None.

    The name of a submenu alone means its first entry, because GRUB enters a submenu at 0.
    """
    level, found = menu, None
    for step in (choice or "0").split(">"):
        found = pick(level, step.strip())
        if found is None:
            return None
        level = found.children or []
    for _ in range(16):
        if found is None or found.children is None:
            return found
        found = found.children[0] if found.children else None
    return None


def pick(level: list[Entry], step: str) -> Entry | None:
    """The entry of one level by id, title or number."""
    for entry in level:
        if step and step in (entry.identifier, entry.title):
            return entry
    if step.isdigit() and len(step) < 6 and int(step) < len(level):
        return level[int(step)]
    return None


def release_of_image(path: str | None) -> str | None:
    """6.8.0-45-generic from /boot/vmlinuz-6.8.0-45-generic, None for another name."""
    name = (path or "").rpartition("/")[2]
    for stem in ("vmlinuz-", "vmlinux-", "Image-", "kernel-"):
        if name.startswith(stem) and len(name) > len(stem):
            return name[len(stem) :]
    return None


def parse_loader_entry(text: str) -> dict[str, str]:
    """{title, version, linux, …} of a Boot Loader Specification entry; the first of repeated
    keys."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, _space, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            values.setdefault(key, value.strip())
    return values
