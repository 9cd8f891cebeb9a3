"""Masks secrets, host names, addresses and users; the same name always gets the same mask."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from unhang.core.no_user_names import ALSO_WORDS, NO_USER_NAMES
from unhang.core.secrets_in_text import without_secrets

_V4 = re.compile(
    r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.]*\d)"
)
_V6 = re.compile(
    r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:])|(?<![\w:])(?:[0-9a-fA-F]{1,4}:){1,6}(?::[0-9a-fA-F]{1,4}){1,6}(?![\w:.])"
)
_MAC = re.compile(
    r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}(?:[0-9a-fA-F]{2})(?:(?::[0-9a-fA-F]{2}){14})?(?![\w:])"
)
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HOME = re.compile(r"(/(?:home|Users|nfs/home|data/home)/)([^/\s\"':,]{1,64})")
_USER = r"(?P<user>[A-Za-z_][\w.-]{0,31}(?<![.-]))"
# Where a user's name is; what comes before it stays.
_USERS = (
    re.compile(rf"(?:\b(?:[ug]id|groups)=|(?<=\),))\d{{1,10}}\({_USER}(?=\))"),
    re.compile(
        r"\b(?:[Uu]ser(?: ?name)?|USER|LOGNAME|[Oo]wner|owned by)[\"']?(?: ?[:=] ?|"
        rf" )[\"'`(]?{_USER}(?![\w/])"
    ),
    re.compile(
        rf"(?<![\w.+/:-]){_USER}(?=@[A-Za-z][\w-]{{0,62}}(?:\.[\w-]{{1,63}}){{0,4}}\.[a-z]{{2,12}}\b)"
    ),
)
_SHORTEST_EVERYWHERE = 3
_DOMAIN = re.compile(
    r"\b(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,62})\.){1,6}(?:local|internal|lan|corp|cluster|svc|com|net|org|io|edu|gov|de|cloud)\b(?!\()"
)
_MAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}\b")
_HOSTS = (
    re.compile(
        r"(?:MASTER_ADDR=|--master[_-]addr[= ]|--rdzv[_-]endpoint[= ]|NodeName=|--host(?:name)?[="
        r" ])[\"']?(?P<host>[A-Za-z][\w.-]{1,120})"
    ),
    re.compile(r"\[(?P<host>[A-Za-z][\w.-]{1,120})\]:\d{2,5}\b"),
    re.compile(
        r"(?:connect to|peer|network addresses of)"
        r" \(?(?P<host>[A-Za-z][\w-]{1,60}(?:\.[\w-]{1,60}){0,6})(?:, \d{2,5}\)|<\d{1,5}>)"
    ),
    re.compile(r"\b[a-z_][\w.-]{0,31}@(?P<host>[A-Za-z][\w-]{1,62})(?=[: ~]|$)"),
    re.compile(r"\bon node (?P<host>[A-Za-z][\w.-]{1,80})"),
)
_NO_HOSTS = "localhost cuda any all the this a"
_PUBLIC = """github.com docs.nvidia.com docs.pytorch.org pytorch.org docs.kernel.org
bugs.launchpad.net man7.org huggingface.co"""
_KEPT_V4 = ("127.0.0.1", "0.0.0.0", "255.255.255.255")  # noqa: S104 -- names, nothing is bound
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Mask:
    """Remembers the mask of each name, so that a host and a user have one mask everywhere."""

    def __init__(self, hosts: Iterable[str], users: Iterable[str] = ()) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._known = frozenset(users)
        names = "|".join(
            map(
                re.escape,
                sorted(filter(_is_no_word, self._known), key=lambda name: (-len(name), name)),
            )
        )
        self._users = (
            re.compile(rf"(?<![A-Za-z0-9<])(?:{names})(?![A-Za-z0-9>])") if names else None
        )
        self._hosts: dict[str, str] = {}
        for host in hosts:
            bare = host.split(".")[0]
            mask = self._hosts.setdefault(bare, f"<host-{len(set(self._hosts.values())) + 1}>")
            self._hosts[host] = mask
        self._hosts.pop("localhost", None)

    def text(self, text: str) -> str:
        """`text` with secrets, hosts, addresses and users masked."""
        text = without_secrets(text)
        text = _MAIL.sub(lambda found: self._named("mail", found.group()), text)
        text = _HOME.sub(lambda found: found.group(1) + self._named("user", found.group(2)), text)
        for pattern in _USERS:
            text = pattern.sub(self._user, text)
        text = _UUID.sub(lambda found: self._named("gpu", found.group()), text)
        text = _MAC.sub(lambda found: self._named("mac", found.group()), text)
        text = _V4.sub(
            lambda found: (
                found.group()
                if found.group() in _KEPT_V4 or _is_version(found)
                else self._named("ip", found.group())
            ),
            text,
        )
        text = _V6.sub(lambda found: self._named("ip", found.group().lower()), text)
        text = _DOMAIN.sub(self._domain, text)
        text = _WORD.sub(lambda found: self._host(found.group()), text) if self._hosts else text
        return (
            self._users.sub(lambda found: self._named("user", found.group()), text)
            if self._users
            else text
        )

    def value(self, value: Any) -> Any:
        """The same for every text in a document, except keys of maps."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                key: one if key in ("url", "schema", "cause") else self.value(one)
                for key, one in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.value(one) for one in value]
        return value

    def _named(self, kind: str, name: str) -> str:
        count = sum(1 for other, _ in self._names if other == kind)
        return self._names.setdefault((kind, name), f"<{kind}-{count + 1}>")

    def _user(self, found: re.Match[str]) -> str:
        """A name that the evidence shows to be one; other words follow "user" too."""
        name = found["user"]
        return (
            found.group()[: -len(name)] + self._named("user", name)
            if name in self._known
            else found.group()
        )

    def _domain(self, found: re.Match[str]) -> str:
        name = found.group()
        if name.endswith((*_PUBLIC.split(),)):
            return name
        return self._hosts.get(name.split(".")[0]) or self._named("host", name).replace(
            "<host-", "<domain-"
        )

    def _host(self, word: str) -> str:
        """Masks a host as a whole word, or as the beginning of a word such as the name of its
        log."""
        stripped = word.rstrip(".-")
        mask = self._hosts.get(stripped)
        return mask + word[len(stripped) :] if mask else word


def _is_version(found: re.Match[str]) -> bool:
    """12.8.4.1 after a name and == is a version of a package."""
    before = found.string[max(0, found.start() - 12) : found.start()]
    return before.endswith(("==", "version ", "Version ", "v")) or before.rstrip().endswith("-")


def hosts_in(value: Any) -> Iterator[str]:
    """Names that the texts of a document use as hosts."""
    for text in _texts(value):
        for pattern in _HOSTS:
            for found in pattern.finditer(text):
                name = found["host"].rstrip(".-")
                if not name.replace(".", "").isdigit() and name.lower() not in _NO_HOSTS.split():
                    yield name


def users_in(value: Any) -> Iterator[str]:
    """Names that the texts of a document use as users."""
    for text in _texts(value):
        homes = (found.group(2) for found in _HOME.finditer(text))
        for name in (
            *homes,
            *(found["user"] for pattern in _USERS for found in pattern.finditer(text)),
        ):
            if name.lower() not in NO_USER_NAMES:
                yield name


def _is_no_word(user: str) -> bool:
    """Whether a user's name can be masked wherever it is, because it is no ordinary word."""
    return (
        len(user) >= _SHORTEST_EVERYWHERE
        and user.lower() not in ALSO_WORDS
        and re.fullmatch(r"[A-Za-z_][\w-]*", user) is not None
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if key not in ("sources", "url"):
                yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)


def redacted(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """The diagnosis document with names masked."""
    facts = diagnosis["facts"]
    hosts = [
        *facts["hosts"],
        *(one["host"] for one in facts.get("audited", [])),
    ]
    shown = [
        diagnosis["inputs"],
        facts,
        *(cause[side] for cause in diagnosis["causes"] for side in ("evidence", "against")),
        diagnosis["remarks"],
    ]
    users = dict.fromkeys(name for one in (*shown, diagnosis["outcome"]) for name in users_in(one))
    masked: dict[str, Any] = Mask(
        [*hosts, *dict.fromkeys(name for one in shown for name in hosts_in(one))], users
    ).value(diagnosis)
    return masked
