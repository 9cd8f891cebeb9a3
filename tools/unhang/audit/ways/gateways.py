"""Gateways between the controller and its nodes, as the site's own ClusterShell topology.conf has
them.

The nodes' ssh goes through them and ends at the node: a gateway forwards bytes that it can neither
read nor change. ClusterShell's own gateways would do the ssh themselves, and what they send is
unpickled: one that lies could run a program on the controller.
"""

from __future__ import annotations

import configparser
import contextlib
import getopt
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ClusterShell.Task import Task
from ClusterShell.Topology import TopologyError, TopologyNodeGroup, TopologyParser

from unhang.core.errors import UserError
from unhang.core.nodeset import MAX_HOSTS, expand_limit, split_patterns
from unhang.core.strict_json import read_bounded
from unhang.core.text import visible

Routes = Mapping[str, tuple[str, ...]]
# ssh's options of one letter, and keywords by which its arguments name a way themselves. A
# configuration (-F) is ssh's own too, but names none by itself.
SSH_OPTIONS = "46AaB:b:Cc:D:E:e:F:fGgI:i:J:KkL:l:Mm:NnO:o:P:p:Q:qR:S:sTtVvW:w:XxYy"
OWN_PATH = re.compile(r"\s*proxy(?:command|jump)\s*(?:=|\s)", re.IGNORECASE)
MOST_BYTES = 1 << 20  # of topology.conf
OPENING_S = 15.0
ENDING_S = 5.0


def topology_file() -> Path | None:
    """The site's, where ClusterShell looks for it."""
    return next((Path(one) for one in Task.TOPOLOGY_CONFIGS[::-1] if Path(one).is_file()), None)


def routes_of(place: Path, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """{node: gateways on the way to it, the nearest first}, of the nodes behind gateways; the nodes
    of one group take its gateways in turn. Raises UserError.

    A topology that does not begin at this machine says nothing of its ways.
    """
    try:
        tree = _topology(place).tree(socket.gethostname().partition(".")[0])
    except (OSError, TopologyError, configparser.Error, ValueError, UserError) as problem:
        if "root node" in str(problem):
            return {}
        raise UserError(
            f"{place} is not a topology of ClusterShell: {visible(str(problem), 200)}"
        ) from None
    found = {node: way for group in tree.root.children() for node, way in _below(group, ())}
    return {name: found[name] for name in names if found.get(name)}


def _topology(place: Path) -> TopologyParser:
    """ClusterShell's, after a look at the number of nodes: ClusterShell itself makes each of them.
    Raises UserError, ValueError, OSError."""
    parser, count = TopologyParser(), 0
    parser.read_string(read_bounded(place, MOST_BYTES).decode())
    texts = [
        text for section in parser.sections() for pair in parser.items(section) for text in pair
    ]
    for term in (term for text in texts for term in split_patterns(text, ",")):
        count += len(expand_limit(term))
        if count > MAX_HOSTS:
            raise UserError(f"more than {MAX_HOSTS} nodes, with {visible(term, 120)!r}")
    parser.load(str(place))
    return parser


def _below(group: TopologyNodeGroup, way: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(node, gateways before it) of a group and of what is behind it."""
    members = [str(node) for node in group.nodeset]
    yield from ((node, way) for node in members)
    for child in group.children():
        several = [dict(_below(child, (*way, one))) for one in members]
        yield from (
            (str(node), several[number % len(several)][str(node)])
            for number, node in enumerate(several[0])
        )


def has_own_path(argv: Sequence[str]) -> bool:
    """Whether these arguments of ssh, the program first, name a way already. Arguments that ssh
    would not understand are left as they are."""
    try:
        options, _ = getopt.getopt(list(argv[1:]), SSH_OPTIONS)
    except getopt.GetoptError:
        return True
    return any(
        option == "-J" or (option == "-o" and OWN_PATH.match(value)) for option, value in options
    )


@contextlib.contextmanager
def opened(routes: Routes) -> Iterator[dict[str, tuple[str, ...]]]:
    """{node: options of ssh}: one connection to each gateway is opened, which all nodes behind it
    share, and closed at the end."""
    # short: the path of a socket may have at most 108 characters
    folder = Path(tempfile.mkdtemp(prefix="unhang-gw-"))
    ways = sorted(
        {way[: depth + 1] for way in routes.values() for depth in range(len(way))}, key=len
    )
    sockets = {way: folder / str(number) for number, way in enumerate(ways)}
    masters: list[subprocess.Popen[bytes]] = []
    try:
        for depth in sorted({len(way) for way in ways}):
            level = [way for way in ways if len(way) == depth]
            started = [(sockets[way], _master(way, sockets)) for way in level]
            masters += [process for _, process in started]
            _await(started)
        yield {
            node: ("-o", f"ProxyCommand={_through(way, sockets)}") for node, way in routes.items()
        }
    finally:
        _end(masters)
        shutil.rmtree(folder, ignore_errors=True)


def _master(
    way: tuple[str, ...], sockets: Mapping[tuple[str, ...], Path]
) -> subprocess.Popen[bytes]:
    """The connection to the last gateway of a way, through those before it; how is the site's
    ssh_config. What a gateway prints is not read."""
    before = ["-o", f"ProxyCommand={_through(way[:-1], sockets)}"] if way[:-1] else []
    sharing = [
        "-o",
        "ControlMaster=yes",
        "-o",
        f"ControlPath={sockets[way]}",
        "-o",
        "ControlPersist=no",
    ]
    argv = [
        "ssh",
        "-N",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "-o",
        "ServerAliveInterval=10",
        *sharing,
        *before,
        "--",
        way[-1],
    ]
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _through(way: tuple[str, ...], sockets: Mapping[tuple[str, ...], Path]) -> str:
    """ProxyCommand by a gateway's open connection; one that is not open makes no other."""
    return (
        f"ssh -o BatchMode=yes -o ControlMaster=no -o ControlPath={sockets[way]} -o"
        f" ProxyCommand=false -W '[%h]:%p' -- {shlex.quote(way[-1])}"
    )


def _await(started: Sequence[tuple[Path, subprocess.Popen[bytes]]]) -> None:
    """Until each is connected or has ended. One that is slower costs its nodes their answers, and
    not the others theirs."""
    until = time.monotonic() + OPENING_S
    while time.monotonic() < until and any(
        not place.exists() and process.poll() is None for place, process in started
    ):
        time.sleep(0.05)


def _end(masters: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in masters[::-1]:
        process.terminate()
    for process in masters:
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
