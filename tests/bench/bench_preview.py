"""What a preview of one node costs beside an audit of it: tasks, skipped tasks and CPU seconds.
Prints rows of docs/benchmarks.md.

    python tests/bench/bench_preview.py [--roles NAME,... ...]

The node is this machine, over Ansible's local connection and in check mode, so that CPU includes
what the node's side takes. Both are judged once: the audit by `unhang judge`, the preview by its
own step.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools")]

from unhang.core.ansible import ansible_env  # noqa: E402

ALL = (
    "kernel,gpu_driver,fabric_manager,nccl_profile,build_toolchain,gpu_binding,host_tuning,"
    "package_hold"
)
DEFAULT = ("package_hold", "gpu_binding,package_hold", "host_tuning", ALL)
HEAD = "| roles | tasks | skipped | CPU s | CPU, audit = 1 |"


def played(work: Path, playbook: str, judged: bool, *arguments: str) -> tuple[int, int, float]:
    """(tasks, skipped tasks, CPU seconds) of a playbook."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [
            *(ansible_env.ansible_program("ansible-playbook"), str(ROOT / "playbooks" / playbook)),
            *("-i", str(work / "hosts"), *arguments),
        ],
        env={
            **ansible_env.ansible_environment(ROOT, os.environ),
            "UNHANG_RUNS": str(work / "runs"),
            "UNHANG_JUDGE": str(int(judged)),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
        },
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{playbook} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}")
    count = [len(re.findall(rf"^{start}", done.stdout, re.M)) for start in (r"TASK \[", "skipping")]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return count[0], count[1], cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--roles", nargs="+", default=DEFAULT, help="sets of roles to preview")
    sets = parser.parse_args().roles
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as folder:
        work = Path(folder)
        (work / "hosts").write_text("n1 ansible_connection=local\n")
        played(work, "audit.yml", True)  # fills caches
        audit = played(work, "audit.yml", True)
        print(f"{HEAD}\n| --- | --- | --- | --- | --- |")  # noqa: T201
        print(f"| (audit) | {audit[0]} | {audit[1]} | {audit[2]:.1f} | 1 |")  # noqa: T201
        for roles in sets:
            tasks, skipped, cpu_s = played(
                work, "remediate.yml", False, "-e", f"unhang_roles={roles}"
            )
            name = "all eight" if roles == ALL else roles.replace(",", ", ")
            print(f"| {name} | {tasks} | {skipped} | {cpu_s:.1f} | {cpu_s / audit[2]:.1f} |")  # noqa: T201


if __name__ == "__main__":
    main()
