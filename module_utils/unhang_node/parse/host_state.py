"""Text of the kernel's switches and of /etc/hosts to values."""

from __future__ import annotations

NAMES, ADDRESSES = 4096, 16


def parse_choice(text: str) -> str | None:
    """The chosen word of a sysfs switch ("always [madvise] never"), the one word of a file that marks none, None for anything else."""
    words = text.split()
    marked = [word[1:-1] for word in words if word.startswith("[") and word.endswith("]") and len(word) > 2]
    if len(marked) == 1:
        return marked[0][:64]
    return words[0][:64] if len(words) == 1 and words[0][0] != "[" else None


def parse_host_addresses(text: str, hostname: str) -> list[str]:
    """Addresses that /etc/hosts gives a name, short or with its domain, in the order of the file."""
    wanted = {hostname.lower(), hostname.lower().partition(".")[0]}
    found: list[str] = []
    for line in text.splitlines()[:NAMES]:
        words = line.partition("#")[0].split()
        if words and words[0] not in found and wanted & {word.lower() for word in words[1:]}:
            found.append(words[0][:64])
    return found[:ADDRESSES]
