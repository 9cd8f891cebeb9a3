"""What boot loaders read, as text: which entry starts a kernel, GRUB's environment block, our part of its configuration, options of a loader entry. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...parse.grub import Entry, parse_menu, release_of_image
from ..config.setting_files import OWN

GRUB_DROP_IN = "/etc/default/grub.d/zz-unhang-boot-trial.cfg"
GRUBENV_BYTES = 1024
GRUBENV_HEAD = "# GRUB Environment Block\n"
MENU_TIMEOUT_S = 5
_NOT_THE_SYSTEM = re.compile(r"recovery|-init-|rescue|memtest", re.I)


def entry_of_release(cfg: str, release: str) -> str | None:
    """GRUB's name of the entry that starts `release` and nothing else ("submenu id>entry id"), or None.

    The first entry of a generated menu starts whatever kernel is the newest, so it is never taken: an entry has to name the release.
    """
    return _find_entry(parse_menu(cfg), release, ())


def _find_entry(level: Sequence[Entry], release: str, above: tuple[str, ...]) -> str | None:
    for entry in level:
        name = entry.identifier or entry.title
        if ">" in name:
            continue  # a title with GRUB's own separator cannot be asked for
        if entry.children is not None:
            found = _find_entry(entry.children, release, (*above, name))
            if found:
                return found
        elif release_of_image(entry.kernel) == release and release in name and not _NOT_THE_SYSTEM.search(name):
            return ">".join((*above, name))
    return None


def changed_grubenv(data: bytes, values: dict[str, str | None]) -> bytes:
    """GRUB's environment block, as bytes, with {name: text, or None to take it away}. data: the block as it is, b"" for none. Raises ValueError.

    Its size never changes: GRUB writes the block in place before any file system is mounted.
    """
    text = data.decode("utf-8", "surrogateescape").rstrip("#") if data.startswith(GRUBENV_HEAD.encode("ascii")) else ""
    if data and not text:
        raise ValueError("expected GRUB's environment block, found a file that does not begin as one; make a new one with grub-editenv")
    kept = [line for line in (text or GRUBENV_HEAD).split("\n") if line and line.partition("=")[0] not in values]
    lines = kept + ["{}={}".format(name, value.replace("\\", "\\\\")) for name, value in sorted(values.items()) if value]
    after = ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
    size = max(len(data), GRUBENV_BYTES)
    if len(after) > size:
        raise ValueError(f"expected GRUB's environment block to hold {size} bytes, found {len(after)} to be written")
    return after + b"#" * (size - len(after))


def drop_in_text(trial_options: str) -> str:
    """Our part of GRUB's configuration, which is shell: the default is an entry that is named, and the menu never waits for a key.

    trial_options: kernel parameters while a kernel is on trial, such as "panic=30", else "".
    """
    lines = [OWN, "GRUB_DEFAULT=saved", "GRUB_SAVEDEFAULT=false", f"GRUB_RECORDFAIL_TIMEOUT={MENU_TIMEOUT_S}"]
    lines.append(f'[ "$GRUB_TIMEOUT" != -1 ] || GRUB_TIMEOUT={MENU_TIMEOUT_S}')
    if trial_options:
        # What comes last on the kernel's command line wins.
        lines.append(f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {trial_options}"')
    return "\n".join(lines) + "\n"


def with_options(entry: str, options: str) -> str:
    """A loader entry's text with these kernel parameters at the end of its options. Nothing is added twice."""
    if not options or any(_words_are_there(line, options) for line in entry.split("\n")):
        return entry
    lines = entry.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("options"):
            lines[number] = line.rstrip() + " " + options
            return "\n".join(lines)
    return entry.rstrip("\n") + "\noptions " + options + "\n"


def without_options(entry: str, options: str) -> str:
    """The other way round."""
    if not options:
        return entry
    lines = [line[: -len(options)].rstrip() if _words_are_there(line, options) else line for line in entry.split("\n")]
    return "\n".join(line for line in lines if line != "options")


def _words_are_there(line: str, options: str) -> bool:
    return line.startswith("options") and line.rstrip().endswith(" " + options)
