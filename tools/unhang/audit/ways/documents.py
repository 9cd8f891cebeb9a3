"""Documents of nodes in bytes from elsewhere: where each ends, and whether it is one, by the one
strict reader of answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS, what_is_wrong
from unhang.core.ansible.printable_text import clean
from unhang.core.ansible.run_files import node_document
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.documents import InvalidNode, decode_plain
from unhang.core.strict_json import NotStrict, parse_strictly
from unhang.core.together import CountedStream

NODE, FACTS = "unhang/node/1", "unhang/node-facts/1"
CHUNK = 1 << 20
# What decides where a document ends. A line break ends a string too: JSON allows none in it, so the
# string was cut.
TOKEN = re.compile(rb'"(?:[^"\\\n]|\\[^\n])*+(?P<end>"|\\?\n)?|[{}\[\]]')
# A brace behind [ , or : begins a value of the document, unless it begins as a document does: the
# one before was cut there.
HEAD, LONGEST_HEAD = re.compile(rb'\{\s{0,16}"schema"\s{0,4}:\s{0,4}"unhang/node'), 64
# blanks, or what `kubectl logs --prefix` puts before a line
BEFORE = re.compile(rb"(?:\[pod/[^\]\n]{1,600}\])?\s*")
POD = re.compile(rb"\[pod/(?P<pod>[a-z0-9.-]{1,253})/(?P<container>[a-z0-9-]{1,63})\]")
# `kubectl get configmaps -o json`: each document is a string in it
OF_KUBECTL = re.compile(rb'\s*\{\s*"apiVersion"')
IN_CONFIG_MAP = re.compile(
    rb'"node\.json":\s*("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
)
A_KEY = re.compile(rb'":\s?(?:[\d"{\[-]|null|true|false)')


@dataclass(frozen=True)
class Arrival:
    """One document that came. place: of it, for messages; stem: of its file's name, or ""; node:
    schema unhang/node/1, None for one that cannot be read, which `fault` says why; raw: the
    beginning of that one; is_of_run: a controller wrote it into a run folder; has_claims: it came
    from elsewhere with groups or a policy, which were dropped."""

    place: str
    stem: str
    node: dict[str, Any] | None = None
    fault: str = ""
    raw: str = ""
    is_of_run: bool = False
    has_claims: bool = False


def read_arrival(place: str, stem: str, piece: bytes, is_of_run: bool = False) -> Arrival:
    """One document: a node's facts, or a node's file of a run. A node is called as it calls itself,
    else as the file.

    Any node can send a node's file with groups and a policy, so only those of a run folder count.
    """
    try:
        node = _node(piece, stem)
    except (NotStrict, InvalidNode) as problem:
        pod = POD.match(piece)
        return Arrival(
            place,
            pod["pod"].decode() if pod else stem,
            fault=_rest_of_cut(piece, pod) or clean(problem),
            raw=piece[:ANSWER_LIMIT_CHARS].decode("utf-8", "replace"),
        )
    if is_of_run:
        return Arrival(place, stem, node, is_of_run=True)
    return Arrival(
        place,
        stem,
        {**node, "groups": [], "policy": {}},
        has_claims=bool(node["groups"] or node["policy"]),
    )


def _rest_of_cut(piece: bytes, pod: re.Match[bytes] | None) -> str:
    """The fault of a document whose beginning is missing, and how all of it is had; "" for another.

    A container's log keeps a line in records of 16 KiB; `kubectl logs --tail=1` prints the last.
    """
    rest = piece[pod.end() if pod else 0 :].strip()
    if not rest.endswith(b"}") or (rest.startswith(b"{") and not pod) or not A_KEY.search(rest):
        return ""
    named = f"{pod['pod'].decode()} -c {pod['container'].decode()}" if pod else "POD -c collector"
    return (
        f"the last {len(rest)} bytes of a document, its beginning is missing: a container's log"
        " keeps a long line in pieces of 16 KiB; fetch all of it by kubectl logs -n NAMESPACE"
        f" {named} --tail=-1"
    )


def claims_dropped(hosts: Iterable[str]) -> str:
    """One line."""
    return (
        "groups and policy count only from a run folder or an inventory, and were not used of"
        f" {shortened(fold_hosts(hosts), 120)}"
    )


def _node(piece: bytes, stem: str) -> dict[str, Any]:
    if len(piece) > ANSWER_LIMIT_CHARS:
        raise NotStrict(f"the answer has {len(piece)} characters, more than {ANSWER_LIMIT_CHARS}")
    document = parse_strictly(piece, half_characters=True)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == NODE:
        node = decode_plain(piece)
        if fault := what_is_wrong(node["facts"]) if node["facts"] is not None else None:
            raise NotStrict(fault)
        return node
    if schema != FACTS:
        found = f"schema {clean(schema, 80)}" if schema else type(document).__name__
        raise NotStrict(
            f"{found} is not a document of unhang collect ({FACTS}) or a node's file of a run"
            f" ({NODE})"
        )
    if fault := what_is_wrong(document):
        raise NotStrict(fault)
    return node_document(
        hostname_of(document) or stem.strip("-") or "localhost", [], {}, "ok", None, document
    )


def hostname_of(facts: Any) -> str:
    """The node's own name for itself; "" if its facts have none."""
    name = facts["sections"].get("node", {}).get("hostname")
    return name if isinstance(name, str) else ""


def split_documents(source: IO[bytes] | CountedStream) -> Iterator[bytes]:
    """The documents of a stream, each as soon as it has ended, with or without line breaks between
    them, and what is between them, line by line.

    A document that was cut ends where the next one begins a line. No piece is longer than an answer
    may be, and one chunk.
    """
    splitter = _Splitter()
    while chunk := source.read(CHUNK):
        if not splitter.held and OF_KUBECTL.match(chunk):
            yield from _of_config_maps(source, chunk)
            return
        yield from splitter.pieces(chunk)
    yield from splitter.pieces(b"", is_last=True)
    yield from splitter.rest()


def _of_config_maps(source: IO[bytes] | CountedStream, held: bytes) -> Iterator[bytes]:
    """The documents of a list of ConfigMaps, of which `held` is the beginning."""
    more = held
    while more:
        end = 0
        for found in IN_CONFIG_MAP.finditer(held):
            end = found.end()
            yield json.loads(found[1].decode("utf-8", "replace")).encode("utf-8", "replace")
        more = source.read(CHUNK)
        held = held[end:][-3 * ANSWER_LIMIT_CHARS :] + more


class _Splitter:
    """held: what has come and was not yielded; at: the place in it up to which it was looked at;
    depth: of the document that begins it, 0 between documents."""

    def __init__(self) -> None:
        self.held, self.at, self.depth = b"", 0, 0

    def pieces(self, chunk: bytes, is_last: bool = False) -> Iterator[bytes]:
        """What ends in this chunk. is_last: nothing comes behind it."""
        self.held += chunk
        begin = 0  # of the piece
        at = self.at
        while token := TOKEN.search(self.held, at):
            sign = token[0]
            if sign[:1] == b'"' and not token["end"]:
                break  # its end has not come yet
            if sign == b"{" and not is_last and len(self.held) < token.start() + LONGEST_HEAD:
                break  # not enough has come to know whether it begins a document
            if sign == b"{" and self._begins(begin, token.start()):
                if text := self.held[begin : token.start()]:
                    yield from self._ended(text)
                begin, self.depth = token.start(), 1
            elif self.depth:
                self.depth += (sign in (b"{", b"[")) - (sign in (b"}", b"]"))
                if not self.depth:
                    yield self.held[begin : token.end()]
                    begin = token.end()
            elif sign == b"}":  # the rest of a document that was cut, perhaps before another
                if not is_last and len(self.held) < token.end() + LONGEST_HEAD:
                    break
                if HEAD.match(self.held, token.end()):
                    yield self.held[begin : token.end()]
                    begin = token.end()
            at = token.end()
        else:
            at = len(self.held)
        self.held, self.at = self.held[begin:], max(at - begin, 0)
        if len(self.held) > ANSWER_LIMIT_CHARS:
            yield from self._ended(self.held)
            self.held, self.at, self.depth = b"", 0, 0

    def _begins(self, begin: int, place: int) -> bool:
        """Whether a document begins at this brace: first in its line, or behind another document or
        the mark of a pod."""
        line = max(self.held.rfind(b"\n", begin, place) + 1, begin)
        if self.depth:
            is_first = place == line > begin
            is_value = is_first and self.held[max(begin, place - LONGEST_HEAD) : place].rstrip()[
                -1:
            ] in (b"[", b",", b":")
            return is_first and (not is_value or bool(HEAD.match(self.held, place)))
        before = BEFORE.fullmatch(self.held, line, place)
        # after a pod's mark there may be a value of a document whose beginning is missing
        is_marked = self.held[line : line + 1] == b"["
        return before is not None and (not is_marked or bool(HEAD.match(self.held, place)))

    def _ended(self, text: bytes) -> Iterator[bytes]:
        """A document that was cut, or the lines between two."""
        if self.depth:
            yield text
        else:
            yield from (
                line for line in text.splitlines() if line.strip() and not BEFORE.fullmatch(line)
            )

    def rest(self) -> Iterator[bytes]:
        """What has no end."""
        yield from self._ended(self.held)
