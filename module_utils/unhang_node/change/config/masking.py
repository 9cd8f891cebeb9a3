"""Masks other people's lines of a file in the controller's output: the values that they set, and
credentials in URLs."""

from __future__ import annotations

import re

from ...base.parse.command_line import without_secrets
from ..atomic_files import shown
from .setting_files import BEGIN, END, OWN

MASK = "********"
_URL = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s/@\"']+@")
# with kernel command lines: a key there may be in a line that unhang changes
BOOT_FILES = ("/boot/", "/etc/default/grub", "/etc/kernel/")
KNOWN = ("NCCL_", "CUDA_", "TORCH_")  # values without secrets, which a person must see
_WORD = re.compile(r"[^\s\"']+")
_VALUE = re.compile(r"^(\s*(?:export\s+|setenv\s+)?[A-Za-z_][A-Za-z0-9_.-]*\s*[=:]\s*)\S.*$")


def mask_urls(text: str) -> str:
    """The text without names and passwords in its URLs."""
    return _URL.sub(rf"\1{MASK}@", text)


def mask_value(line: str) -> str:
    """A line with its value masked, if it sets one; any other line with only its URLs masked."""
    name = line.strip().replace("export ", "", 1)
    return mask_urls(line) if name.startswith(KNOWN) else _VALUE.sub(rf"\g<1>{MASK}", line)


def masked_diff(before: str | None, after: str | None, path: str) -> dict[str, str]:
    """(before, after) of a file for --diff: changed lines are shown in full; values in unchanged
    lines of others are masked."""
    old, new = shown(before or ""), shown(after or "")
    if path.startswith(BOOT_FILES):
        old, new = (
            _WORD.sub(lambda found: without_secrets(found.group()), text) for text in (old, new)
        )
    stay = set(old.split("\n")) & set(new.split("\n"))
    return {
        "before": _masked(old, stay),
        "after": _masked(new, stay),
        "before_header": path,
        "after_header": path,
    }


def _masked(text: str, stay: set[str]) -> str:
    lines, inside = text.split("\n"), OWN in text
    masked = []
    for line in lines:
        inside = inside or line == BEGIN
        masked.append(mask_urls(line) if inside or line not in stay else mask_value(line))
        inside = inside and line != END
    return "\n".join(masked)
