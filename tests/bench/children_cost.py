"""What a command of unhang and the processes that it started cost the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from unhang_node.base.root import Root
from unhang_node.job.looks import TICKS
from unhang_node.job.process_table import ancestors, read_stats

HERE = Path(__file__).resolve().parent
UNHANG = "import sys; sys.path[:0] = {}; from unhang.cli import main; sys.exit(main(sys.argv[1:]))".format(
    [str(HERE.parents[1] / name) for name in ("tools", "module_utils")]
)


def cost_of(watch: subprocess.Popen | None) -> dict[str, float]:
    """Of the watcher and the processes that it started: seconds of processor time, MiB in memory,
    and MiB with what is shared counted once."""
    root, found = Root(), {"cpu_s": 0.0, "rss_mib": 0.0, "pss_mib": 0.0}
    stats = read_stats(root) if watch else {}
    for pid in stats:
        if watch and watch.pid in ancestors(stats, pid):
            found["cpu_s"] += stats[pid].cpu_ticks / TICKS
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
            for name in ("Rss", "Pss"):
                found[name.lower() + "_mib"] += (
                    sum(int(line.split()[1]) for line in lines if line.startswith(name + ":"))
                    / 1024
                )
    return {name: round(value, 3) for name, value in found.items()}
