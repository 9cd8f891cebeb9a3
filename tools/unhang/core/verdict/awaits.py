"""For what one rank waits in its innermost call, in words; and whether it is a server without work.
Values in, values out.

What the kernel said of the call (wait_of in unhang_node/job/waits.py) counts; where it was hidden,
Python's innermost frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from unhang.core.verdict.activities import (
    LOCK,
    MAIN,
    OTHER,
    SERVING,
    WAITS,
    activity_of,
    innermost_of,
)
from unhang.core.verdict.job import IDLE, Process, RankLook, Wait

BUSY_SERVER_CORES = 0.5
LISTENS = "LISTEN"
_BY_DESCRIPTOR = ("read", "write", "fsync", "recv", "send", "connect")
_POLLS = ("epoll", "poll", "select")
QUEUE, BROADCAST = "get (queue.py)", "dequeue (shm_broadcast.py)"
OF_THREADS = "(threading.py)"
YOUNGEST = 5  # frames in which a wait for a queue shows


def wait_words(look: RankLook) -> str:
    """flock on /data/x.lock, which process 12 (python3, state S) holds; "" where nothing is known,
    and for a rank that waits for the others."""
    if look.activity in WAITS:
        return ""
    wait, call = look.wait, look.wait.call
    if call == "wait" or (not call and look.innermost.endswith("(subprocess.py)")):
        return f"waits for {_child(wait.child, look.children)}"
    if call in ("flock", "lock"):
        return f"waits in {call} for {_lock(wait)}"
    if awaits_a_build(look) and look.locks:
        return f"waits for the lock {' or '.join(look.locks[:2])}"
    if call == "polls":
        return f"has open {_lock(wait)}"
    peers = [one.remote for one in wait.sockets if one.state != LISTENS]
    listening = [one.local for one in wait.sockets if one.state == LISTENS]
    if listening and call in ("accept", *_POLLS):
        return f"waits in {call} for connections at {listening[0]}"
    if call in _BY_DESCRIPTOR and wait.target:
        return f"waits in {call} {_what(wait.target, peers)}"
    return f"waits in {call} for {', '.join(peers[:2])}" if call in _POLLS and peers else ""


def awaits_a_build(look: RankLook) -> bool:
    """Whether it is in torch's baton, until the lock file of an extension's build is gone."""
    return look.activity == LOCK and "baton" in look.innermost


def is_idle(look: RankLook) -> bool:
    """A server that waits for requests and does nothing meanwhile: in accept, in its loop, for what
    a thread of it that serves will bring, or for its engine, which has no request."""
    if (look.cpu or 0) > BUSY_SERVER_CORES or look.signs:
        return False
    if look.awaits_engine or look.engine:
        return look.awaits_engine and look.engine == IDLE
    call, sockets = look.wait.call, look.wait.sockets
    if call == "accept":
        return True
    if call in _POLLS and sockets:
        ports = {_port(one.local) for one in sockets if one.state == LISTENS}
        return bool(ports) and all(_port(one.local) in ports for one in sockets)
    if call in _BY_DESCRIPTOR or call in ("wait", "flock", "lock"):
        return False
    return look.activity == SERVING or (
        look.serves and look.innermost.endswith(OF_THREADS) and look.awaits_a_queue
    )


def takes_from(frames: Sequence[str], queue: str = QUEUE) -> bool:
    """Whether a thread waits for what comes by a queue."""
    return queue in map(innermost_of, ([frame] for frame in frames[:YOUNGEST]))


def telling_thread(ranks: Sequence[Mapping[str, Sequence[str]]]) -> str:
    """The name of the threads that show where the ranks are: the main ones, unless all of those
    wait for a thread of their own, and threads of one name wait for other ranks, such as those of
    an asynchronous save. ranks: of each the name of a thread -> its frames."""
    if all(innermost_of(one.get(MAIN, ())).endswith(OF_THREADS) for one in ranks):
        for name in {*ranks[0]} - {MAIN, OTHER} if ranks else ():
            doing = [activity_of(one.get(name, ())) for one in ranks]
            if all(doing) and any(one.awaits_ranks for one in doing if one):
                return name
    return MAIN


def one_serves(threads: Iterable[Sequence[str]]) -> bool:
    """Whether one of the threads whose frames these are is a server."""
    return any(one is not None and one.name == SERVING for one in map(activity_of, threads))


def _child(child: Process | None, children: Sequence[Process]) -> str:
    """The child that the call names, or the only one that there is."""
    one = child or (children[0] if len(children) == 1 else None)
    return f"its child {one}" if one else "a child"


def _lock(wait: Wait) -> str:
    held = f", which process {wait.holder} holds" if wait.holder else ""
    return f"{wait.target or 'a lock'}{held}"


def _what(target: str, peers: Sequence[str]) -> str:
    if target.startswith("/"):
        return f"on {target}"
    return f"for {peers[0]}" if peers else f"on a {target.partition(':')[0]}"


def _port(address: str) -> str:
    return address.rpartition(":")[2]
