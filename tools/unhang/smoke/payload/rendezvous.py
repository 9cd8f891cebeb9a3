"""Phase rendezvous: all ranks meet at one store."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from typing import Any

from .run import Failed, Run, short_list


def phase_rendezvous(run: Run) -> dict[str, Any]:
    """All ranks meet at the store. Ranks that are missing at the deadline are reported."""
    import datetime

    address, port = run.plan["master_address"], int(run.plan["master_port"])
    limit_s = run.phase_until - time.monotonic() - 5
    if run.rank == 0:
        require_free(port)
    try:
        run.store = run.dist.TCPStore(
            address,
            port,
            run.world,
            run.rank == 0,
            timeout=datetime.timedelta(seconds=limit_s),
            wait_for_workers=False,
        )
    except (RuntimeError, ValueError, OSError) as problem:
        output = " ".join(str(problem).split())[:300]
        raise Failed(
            "the store at %s:%d cannot be %s: %s"
            % (address, port, "opened" if run.rank == 0 else "reached", output)
        ) from None
    run.store.set("here/%d" % run.rank, run.host)
    until = time.monotonic() + limit_s
    missing = list(range(run.world))
    while missing:
        missing = [rank for rank in missing if not run.store.check(["here/%d" % rank])]
        if missing and time.monotonic() > until:
            raise Failed(
                "of the %d ranks at %s:%d, some are still missing: %s"
                % (run.world, address, port, short_list(missing)),
                missing=missing[:64],
            )
        if missing:
            time.sleep(0.05)
    return {"address": address, "port": port}


def require_free(port: int) -> None:
    """Raises Failed when something listens on the port here."""
    for family, place in (
        (socket.AF_INET6, "::"),
        (socket.AF_INET, "0.0.0.0"),  # noqa: S104
    ):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((place, port))
            except OSError as problem:
                if problem.errno in (errno.EADDRINUSE, errno.EACCES):
                    message = "port %d is in use (%s); choose another with --port" % (
                        port,
                        problem.strerror,
                    )
                    raise Failed(message, blind=True) from None
