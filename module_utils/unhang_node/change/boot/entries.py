"""Texts of boot loaders: the entry that starts a kernel, GRUB's environment block, unhang's part of
GRUB's configuration, options of an entry. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...base.parse.grub import Entry, parse_menu, release_of_image
from ..config.setting_files import OWN

GRUB_DROP_IN = "/etc/default/grub.d/zz-unhang-boot-trial.cfg"
GRUBENV_BYTES = 1024
GRUBENV_HEAD = "# GRUB Environment Block\n"
MENU_TIMEOUT_S = 5
# the last one excludes a kernel of the same release on another system's disk
_NOT_THE_SYSTEM = re.compile(r"recovery|-init-|rescue|memtest|osprober-", re.I)


def entry_of_release(cfg: str, release: str) -> str | None:
    """GRUB's name of the entry for `release` ("submenu id>entry id"), or None.

    Only an entry that names the release is taken, never the first entry of a generated menu: that
    one starts the newest kernel, whichever it is.
    """
    return _find_entry(parse_menu(cfg), release, ())


def _find_entry(level: Sequence[Entry], release: str, above: tuple[str, ...]) -> str | None:
    for entry in level:
        name = entry.identifier or entry.title
        if ">" in name:
            continue  # an entry whose title contains GRUB's own separator cannot be selected
        if entry.children is not None:
            found = _find_entry(entry.children, release, (*above, name))
            if found:
                return found
        elif (
            release_of_image(entry.kernel) == release
            and release in name
            and not _NOT_THE_SYSTEM.search(name)
        ):
            return ">".join((*above, name))
    return None


def changed_grubenv(data: bytes, values: dict[str, str | None]) -> bytes:
    """GRUB's environment block, as bytes, after setting {name: text, or None to remove the name}.
    data: the present block, b"" for none. Raises ValueError.

    Its size never changes: GRUB writes the block in place before any file system is mounted.
    """
    text = (
        data.decode("utf-8", "surrogateescape").rstrip("#")
        if data.startswith(GRUBENV_HEAD.encode("ascii"))
        else ""
    )
    if data and not text:
        raise ValueError(
            "the file does not begin as GRUB's environment block; make a new one with grub-editenv"
        )
    kept = [
        line
        for line in (text or GRUBENV_HEAD).split("\n")
        if line and line.partition("=")[0] not in values
    ]
    lines = kept + [
        "=".join((name, value.replace("\\", "\\\\")))
        for name, value in sorted(values.items())
        if value
    ]
    after = ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
    size = max(len(data), GRUBENV_BYTES)
    if len(after) > size:
        raise ValueError(
            f"GRUB's environment block holds {size} bytes, and {len(after)} would have to be"
            " written"
        )
    return after + b"#" * (size - len(after))


def drop_in_text(trial_options: str) -> str:
    """unhang's part of GRUB's configuration, a shell text: the default entry is selected by name,
    and the menu never waits for a key.

    trial_options: kernel parameters while a kernel is on trial, such as "panic=30", else "".
    """
    lines = [
        OWN,
        "GRUB_DEFAULT=saved",
        "GRUB_SAVEDEFAULT=false",
        f"GRUB_RECORDFAIL_TIMEOUT={MENU_TIMEOUT_S}",
    ]
    lines.append(f'[ "$GRUB_TIMEOUT" != -1 ] || GRUB_TIMEOUT={MENU_TIMEOUT_S}')
    if trial_options:
        # The last value on the kernel's command line wins.
        lines.append(f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {trial_options}"')
    return "\n".join(lines) + "\n"


def with_options(entry: str, options: str) -> str:
    """A loader entry's text with these kernel parameters at the end of its options. A parameter
    that is already there is not added."""
    if not options or any(_ends_with_options(line, options) for line in entry.split("\n")):
        return entry
    lines = entry.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("options"):
            lines[number] = line.rstrip() + " " + options
            return "\n".join(lines)
    return entry.rstrip("\n") + "\noptions " + options + "\n"


def without_options(entry: str, options: str) -> str:
    """A loader entry's text without the parameters that with_options added."""
    if not options:
        return entry
    lines = [
        line[: -len(options)].rstrip() if _ends_with_options(line, options) else line
        for line in entry.split("\n")
    ]
    return "\n".join(line for line in lines if line != "options")


def _ends_with_options(line: str, options: str) -> bool:
    return line.startswith("options") and line.rstrip().endswith(" " + options)
