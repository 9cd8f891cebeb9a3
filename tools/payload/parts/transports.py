"""Which way each pair of ranks talks, from NCCL's own log."""

from __future__ import annotations

import re

TRANSPORT = re.compile(r"Channel (\d+)/\d+ : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[(send|receive)\] )?via ([\w/]+)")
NET_DEVICE = re.compile(r"NCCL INFO NET/\w+ : Using (\[\d.*)")


def transports_of(log):
    """{"0>1": {"via": ["P2P/CUMEM"], "channels": 24}} and the NICs, from NCCL's own log of one rank."""
    pairs, nics = {}, []
    for line in log.splitlines():
        found = TRANSPORT.search(line)
        if found:
            row = pairs.setdefault("%s>%s" % (found.group(2), found.group(3)), {"via": [], "channels": 0})
            row["channels"] += 1
            if found.group(5) not in row["via"]:
                row["via"].append(found.group(5))
        used = NET_DEVICE.search(line)
        if used and used.group(1)[:200] not in nics:
            nics.append(used.group(1)[:200])
    return pairs, nics
