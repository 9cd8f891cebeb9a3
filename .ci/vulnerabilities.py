"""Asks the package index by pip-audit for known vulnerabilities of the versions in requirements
files.

    python .ci/vulnerabilities.py PIP_AUDIT FILE...

Exit code: 0 none is known, or a warning that nothing could be looked up; 1 there are some.
"""

from __future__ import annotations

import json
import subprocess
import sys


def looked_up(program, files):
    """pip-audit's rows, a map for each package; raises OSError or ValueError with the reason if
    there are none."""
    options = [word for file in files for word in ("--requirement", file)]
    command = [
        program,
        "--no-deps",
        "--disable-pip",
        "--format",
        "json",
        "--progress-spinner",
        "off",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise ValueError((done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1])
    return json.loads(done.stdout)["dependencies"]


def warn(text):
    """A line that nobody takes for a pass."""
    print(f"== WARNING: known vulnerabilities were NOT looked up: {text}")
    return 0


def main(program, *files):
    """The exit code."""
    try:
        rows = looked_up(program, files)
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as fault:
        return warn(fault)
    skipped = [row for row in rows if "skip_reason" in row]
    if len(skipped) == len(rows):
        return warn(skipped[0]["skip_reason"] if skipped else "pip-audit read no package")
    for row in skipped:
        print(f"== WARNING: {row['name']} was not looked up: {row['skip_reason']}")
    known = [(row, one) for row in rows for one in row.get("vulns", ())]
    for row, one in known:
        print(
            f"{row['name']} {row['version']}: {one['id']}, fixed in"
            f" {', '.join(one['fix_versions']) or 'no version'}"
        )
    print(f"{len(rows) - len(skipped)} packages looked up, {len(known)} known vulnerabilities")
    return int(bool(known))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
