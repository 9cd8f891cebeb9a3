"""A kernel command line without its secrets: run folders are passed on."""

from __future__ import annotations

import re

MASK = "***"
# the kernel keeps blanks between double quotes (parameters: "KERNEL-PARAMETERS", kernel.org)
_WORD = re.compile(r'(?:[^\s"]|"[^"]*(?:"|$))+')
_NAMED = r"[\w.-]*(?:passw|passphrase|passcode|pwd|secret|token|credential|api_?key|jwt|(?<![A-Za-z0-9])(?:pass|pin|psk|auth)(?=$|=)|key(?=$|=))[\w.-]*"  # noqa: E501
_NAME = re.compile(_NAMED, re.IGNORECASE)
# rootflags=user=x,password=y
_NESTED = re.compile(rf"(?P<before>[=,;&?:])(?P<name>{_NAMED})=[^,;&\"]+", re.IGNORECASE)
_QUERY = re.compile(r"(://[^\s\"?]*\?)[^\s\"]+")
_IN_ADDRESS = re.compile(r"((?:://|\biscsi:))[^@\s\"]*@")  # netroot=iscsi:user:password@server


def without_secrets(line: str) -> str:
    """The line with *** for each value whose name indicates a secret (rd.luks.key=), for users and
    passwords in addresses, and for queries of URLs."""
    said = {"option": False}
    return _WORD.sub(lambda found: _shown(found.group(), said), line)


def _shown(word: str, said: dict[str, bool]) -> str:
    """One word. said: whether the word before was an option of init that takes a secret (--token
    X); is updated."""
    if said["option"] and not word.startswith("-"):
        said["option"] = False
        return MASK
    bare = word.strip('"')
    name, equals, value = bare.partition("=")
    said["option"] = name.startswith("-") and not equals and bool(_NAME.fullmatch(name))
    if equals and value and _NAME.fullmatch(name):
        return f"{name}={MASK}"
    return _NESTED.sub(
        rf"\g<before>\g<name>={MASK}",
        _QUERY.sub(rf"\1{MASK}", _IN_ADDRESS.sub(rf"\1{MASK}@", word)),
    )
