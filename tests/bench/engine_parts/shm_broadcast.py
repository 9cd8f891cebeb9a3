"""A queue between an engine and a worker, which waits as vLLM's does: asleep, and looking again
each 5 s."""

import select


def dequeue(connection):
    """The next message."""
    while not select.select([connection], [], [], 5)[0]:
        pass
    return connection.recv()
