"""Judges the evidence of large jobs as `unhang inspect --evidence` does and prints rows of
docs/benchmarks.md: seconds to the verdict, megabytes.

    python tests/bench/bench_inspect.py [--nodes N]

The documents are those of a recorded look at two real ranks, as many as the job has; looking itself
takes 3 to 7 s on all nodes at once (inspect_bench.py).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

from large_jobs import large_job  # noqa: E402

RUN = """
import resource, sys
from unhang.cli import main
try:
    code = main(sys.argv[1:])
finally:
    sys.stderr.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}\\n")
sys.exit(code)
"""


def measured(nodes: int, per_node: int, late: int) -> str:
    """A row: nodes, ranks, MB of documents, seconds, MB of memory, whether the right rank was
    named."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, document in enumerate(large_job(nodes, per_node, late)):
            paths.append(Path(folder) / f"{number}.json")
            paths[-1].write_text(json.dumps(document))
        size_mb = sum(path.stat().st_size for path in paths) / 1e6
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", RUN, "inspect", "-o", "json", "--evidence", *map(str, paths)],
            capture_output=True,
            text=True,
            check=False,
        )
        took_s = time.monotonic() - began
    named = [suspect["rank"] for suspect in json.loads(done.stdout)["suspects"]]
    memory_mb = int(done.stderr.split()[-1])
    return (
        f"| {nodes} | {nodes * per_node} | {size_mb:.1f} | {took_s:.1f} | {memory_mb} |"
        f" {'yes' if named == [late] else f'no: {named}'} |"
    )


def main() -> int:
    """0 if every row names the right rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64)
    nodes = parser.parse_args().nodes
    rows = [measured(1, 8, 5), measured(nodes, 8, nodes * 4 + 1), measured(125, 8, 517)]
    head = [
        "inspect, from the nodes' documents to the verdict:",
        "",
        "| nodes | ranks | documents, MB | s | memory, MB | right rank |",
        "| --- " * 6 + "|",
    ]
    sys.stdout.write("\n".join([*head, *rows]) + "\n")
    return int(any(not row.endswith("yes |") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
