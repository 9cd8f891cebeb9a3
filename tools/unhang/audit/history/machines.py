"""The name under which the history stores a node. `localhost` may be any machine: homes are shared,
and every container has one."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from unhang.audit.history.packed import unpack_section

# What an inventory calls the machine that Ansible runs on.
OF_ANY_MACHINE = frozenset(
    ("localhost", "localhost.localdomain", "localhost4", "localhost6", "127.0.0.1", "::1")
)
LONGEST_NAME, SHOWN_OF_ID = 64, 8
_LAST_NODE_SECTION = """
SELECT body FROM facts JOIN contents ON contents.id = content JOIN hosts ON hosts.id = facts.host
WHERE hosts.name = ? AND section = 'node' AND to_run IS NULL
"""


def lasting_name(host: str, hostname: str | None, machine_id: str | None) -> str:
    """`localhost@gpu007-1f2e3d4c`: with the machine's own name and the beginning of its id, as far
    as they were read; every other host's name as it is."""
    own = "-".join(
        part for part in ((hostname or "")[:LONGEST_NAME], (machine_id or "")[:SHOWN_OF_ID]) if part
    )
    return f"{host}@{own}" if host in OF_ANY_MACHINE and own else host


def asked_name(name: str) -> str:
    """The name of a host of the history in the inventory."""
    host, _, own = name.partition("@")
    return host if own and host in OF_ANY_MACHINE else name


def names_alike(connection: sqlite3.Connection, asked: str) -> list[str]:
    """The hosts of the history that an inventory calls `asked`, the last one read first; a name
    with its machine means only that one."""
    rows = connection.execute(
        "SELECT name, (SELECT max(run) FROM visits WHERE host = hosts.id) FROM hosts WHERE name ="
        " ?1 OR name LIKE ?1 || '@%'",
        (asked,),
    )
    found = sorted(rows, key=lambda row: -(row[1] or 0))
    return [name for name, _ in found if name == asked or asked_name(name) == asked]


def adopt(connection: sqlite3.Connection, renamed: Mapping[str, str]) -> None:
    """Renames what an older unhang stored under the bare name, if those facts are of this machine.
    renamed: bare name -> lasting name."""
    for host, lasting in renamed.items():
        kept = connection.execute(_LAST_NODE_SECTION, (host,)).fetchone()
        if (
            kept is None
            or connection.execute("SELECT 1 FROM hosts WHERE name = ?", (lasting,)).fetchone()
        ):
            continue
        node = unpack_section(kept[0])
        named = (
            node[key] if isinstance(node.get(key), str) else None
            for key in ("hostname", "machine_id")
        )
        if lasting_name(host, *named) == lasting:
            connection.execute("UPDATE hosts SET name = ? WHERE name = ?", (lasting, host))
