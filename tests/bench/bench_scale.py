"""Reads many nodes by each way, beside Ansible's setup, clush and pyinfra, and prints the rows of
docs/scale.md. As root on Linux.

    make bench-scale ARGS='--nodes 50 --simulated 200'

Nodes are real sshd processes on loopback addresses of a network of their own, one each; the
collector reads this machine through them. Dead nodes are addresses where nothing listens, where
something accepts and says nothing, and from which nothing comes back, a third each. Only the
controller's side is counted. Documents of more nodes than that are recorded answers, which `--via
files` brings.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "bench")]

from scale_meter import Cost, measured  # noqa: E402
from sshd_here import Sshds, addresses  # noqa: E402

PROGRAMS = Path(sys.executable).parent
AT_A_TIME = 64
CONNECT_S = 30  # the sshd processes share this machine's cores with the controller
COLUMNS = ("command", "nodes", "dead", "CPU s", "CPU ms a node", "wall s", "peak MB", "answered")
SIZES = (1, 3, 10, 30, 100)  # per cent of the simulated nodes
PYINFRA = "pyinfra==3.10.0"


class Field:
    """Nodes at addresses, some of them dead, and the files that the programs read them from."""

    def __init__(
        self,
        here: Sshds,
        work: Path,
        count: int,
        dead_percent: float,
        mute: Sequence[str],
        ssh_options: Sequence[str] = (),
    ) -> None:
        dead = round(count * dead_percent / 100)
        places = [
            one
            for trio in zip(
                addresses("127.3.0.1", dead), mute, addresses("10.9.0.1", dead), strict=False
            )
            for one in trio
        ][:dead]
        self.here, self.work, self.count, self.dead = here, work, count, dead
        self.ssh_options = [
            *here.ssh_options,
            *(word for one in ssh_options for word in ("-o", one)),
        ]
        self.addresses = [*here.addresses[: count - dead]]
        for number, place in enumerate(places):  # evenly between the others
            self.addresses.insert(number * count // dead, place)
        self.environment = {
            "HOME": str(work),
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
        }
        self.environment |= {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOST_KEY_CHECKING": "True",
        }
        self._write_inventories()

    def _write_inventories(self) -> None:
        common = {
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": " ".join(self.ssh_options),
        }
        hosts = {
            f"gpu{number:05d}": {"ansible_host": address}
            for number, address in enumerate(self.addresses)
        }
        (self.work / "hosts.json").write_text(
            json.dumps({"all": {"hosts": hosts, "vars": {**common, "ansible_timeout": CONNECT_S}}})
        )
        (self.work / "addresses").write_text("\n".join(self.addresses) + "\n")
        key, known = (str(self.here.folder / name) for name in ("id_ed25519", "known_hosts"))
        reach = {
            "ssh_user": "root",
            "ssh_key": key,
            "ssh_known_hosts_file": known,
            "ssh_strict_host_key_checking": "yes",
            "ssh_connect_timeout": CONNECT_S,
        }
        (self.work / "inventory.py").write_text(
            f"hosts = [(one, {reach!r}) for one in {self.addresses!r}]\n"
        )

    def commands(self, pyinfra: Path | None, *, is_few: bool) -> Iterator[tuple[str, list[str]]]:
        """(name, argv) of what is measured over these nodes. is_few: also the programs that cost
        most."""
        unhang = [sys.executable, "-P", "-m", "unhang"]
        clush = [
            str(PROGRAMS / "clush"),
            "-b",
            "-q",
            "-f",
            str(AT_A_TIME),
            "-t",
            str(CONNECT_S),
            "-l",
            "root",
            "--hostfile",
            str(self.work / "addresses"),
        ]
        clush += ["-o", " ".join(self.ssh_options)]
        audit = [
            *unhang,
            "audit",
            "-i",
            str(self.work / "hosts.json"),
            "--out",
            str(self.work / "runs"),
            "-f",
            str(AT_A_TIME),
        ]
        yield "`unhang audit --via clush`", [*audit, "--via", "clush"]
        if not self.dead:
            yield "of these, `unhang judge`", [*unhang, "judge", str(self.work / "runs" / "latest")]
            yield (
                "`clush -b` with the collector",
                [*clush, "/usr/bin/python3 -I -S /root/.cache/unhang/collect-*.pyz"],
            )
        yield "`clush -b true`", [*clush, "true"]
        if is_few:
            yield "`unhang audit --via ansible`", [*audit, "--via", "ansible"]
            setup = [
                str(PROGRAMS / "ansible"),
                "all",
                "-i",
                str(self.work / "hosts.json"),
                "-f",
                str(AT_A_TIME),
                "-m",
                "setup",
            ]
            yield "`ansible -m setup`", setup
            if pyinfra:
                whole = [
                    "--parallel",
                    str(AT_A_TIME),
                    "--fail-percent",
                    "100",
                    "-y",
                    str(self.work / "inventory.py"),
                    "exec",
                    "--",
                    "true",
                ]
                yield "`pyinfra exec -- true`", [str(pyinfra), *whole]

    def answered(self) -> str:
        """How many nodes of the newest run were read."""
        nodes = list((self.work / "runs" / "latest" / "nodes").glob("*.json"))
        return str(sum(json.loads(path.read_bytes())["status"] == "ok" for path in nodes))


def print_row(name: str, count: int, dead: int, cost: Cost, answered: str = "") -> None:
    """One row of the table, and what a command that failed printed last."""
    numbers = (
        f"{cost.cpu_s:.1f} | {cost.cpu_s * 1e3 / count:.1f} | {cost.wall_s:.1f} |"
        f" {cost.peak_mb:.0f}"
    )
    sys.stdout.write(f"| {name} | {count} | {dead} | {numbers} | {answered} |\n")
    sys.stdout.flush()
    if cost.code not in (0, 1) and not dead:
        sys.stderr.write(f"{name} ended with {cost.code}: {cost.output[-1000:]}\n")


def bench_ssh(options: argparse.Namespace, work: Path, pyinfra: Path | None) -> None:
    """The ways over real sshd processes."""
    with ExitStack() as stack:
        here = stack.enter_context(Sshds(ROOT / ".cache" / "testbed", options.nodes))
        here.swallow("10.9.0.0/16")
        mute = addresses("127.2.0.1", max(1, options.nodes // 3))
        stack.enter_context(here.mute(mute))
        sys.stdout.write(
            f"\n{options.nodes} sshd processes, {AT_A_TIME} at a time, connect deadline {CONNECT_S}"
            f" s\n\n{header()}"
        )
        first = True
        for percent in options.dead:
            for count in dict.fromkeys((options.nodes, min(options.few, options.nodes))):
                folder = work / f"{percent}-{count}"
                folder.mkdir()
                field = Field(here, folder, count, percent, mute, options.ssh_option)
                for name, argv in field.commands(pyinfra, is_few=count <= options.few):
                    if first and "clush" in name:
                        measure(field, f"{name}, which sends the collector", argv)
                        first = False
                    measure(field, name, argv)


def measure(field: Field, name: str, argv: Sequence[str]) -> None:
    """Runs one command over the nodes."""
    # no program finds the connections of the one before it open
    connections = tempfile.mkdtemp(dir=field.work)
    cost = measured(
        field.here.inside(argv, str(ROOT)),
        {**field.environment, "ANSIBLE_SSH_CONTROL_PATH_DIR": connections},
        field.work,
    )
    print_row(name, field.count, field.dead, cost, field.answered() if "audit" in name else "")


def header() -> str:
    """Of the table."""
    return f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}\n"


def bench_files(options: argparse.Namespace, work: Path) -> None:
    """Recorded answers of more nodes: judged, kept and reported, and how the cost grows."""
    from bench_judge import documents

    source = work / "documents"
    source.mkdir()
    environment = {**os.environ, "HOME": str(work)}
    costs, made = [], documents(options.simulated)
    sys.stdout.write(f"\nrecorded answers by `--via files`\n\n{header()}")
    for count in sorted({max(2, options.simulated * size // 100) for size in SIZES}):
        while len(list(source.iterdir())) < count:
            host, document = next(made)
            (source / f"{host}.json").write_text(json.dumps(document, separators=(",", ":")))
        cost = _audit_files(work, source, environment)
        costs.append((count, cost.cpu_s))
        print_row("`unhang audit --via files`", count, 0, cost)
    for what in ("table", "html"):
        report = [
            sys.executable,
            "-P",
            "-m",
            "unhang",
            "report",
            str(work / "runs" / "latest"),
            "--format",
            what,
        ]
        print_row(
            f"`unhang report --format {what}`",
            options.simulated,
            0,
            measured(report, environment, work),
        )
    _print_fit(costs)
    hosts = {path.stem: {} for path in source.iterdir()}
    (work / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    for percent in sorted({*options.dead} - {0}):
        for host in list(hosts)[: round(len(hosts) * percent / 100)]:
            (source / f"{host}.json").unlink(missing_ok=True)
        cost = _audit_files(work, source, environment, "-i", str(work / "hosts.json"))
        print_row(
            "`unhang audit --via files -i`",
            options.simulated,
            len(hosts) - len(list(source.iterdir())),
            cost,
        )


def _audit_files(work: Path, source: Path, environment: dict[str, str], *more: str) -> Cost:
    shutil.rmtree(work / "runs", ignore_errors=True)
    argv = [
        sys.executable,
        "-P",
        "-m",
        "unhang",
        "audit",
        "--via",
        "files",
        *more,
        "--out",
        str(work / "runs"),
        str(source),
    ]
    return measured(argv, environment, work)


def _print_fit(costs: Sequence[tuple[int, float]]) -> None:
    """CPU = fixed + each × nodes, by least squares of relative errors; and the cost of a node at
    each size."""
    weights = [1 / cpu**2 for _, cpu in costs]
    total, mean = (
        sum(weights),
        sum(w * n for w, (n, _) in zip(weights, costs, strict=True)) / sum(weights),
    )
    middle = sum(w * cpu for w, (_, cpu) in zip(weights, costs, strict=True)) / total
    spread = sum(w * (n - mean) ** 2 for w, (n, _) in zip(weights, costs, strict=True))
    each = (
        sum(w * (n - mean) * (cpu - middle) for w, (n, cpu) in zip(weights, costs, strict=True))
        / spread
    )
    fixed = middle - each * mean
    worst = max(abs(cpu / (fixed + each * n) - 1) for n, cpu in costs)
    sys.stdout.write(
        f"\nfit: {fixed:.2f} s + {each * 1e3:.2f} ms a node, farthest from it {worst:.0%}; "
    )
    sys.stdout.write(
        "a node beyond the fixed cost: "
        + ", ".join(f"{(cpu - fixed) * 1e3 / n:.2f} ms of {n}" for n, cpu in costs)
        + f"\n\n{header()}"
    )


def ready_pyinfra(work: Path) -> Path | None:
    """pyinfra in an environment that goes with the folder; None where it cannot be had."""
    for argv in (
        [sys.executable, "-m", "venv", work / "pyinfra"],
        [work / "pyinfra" / "bin" / "pip", "install", "--quiet", PYINFRA],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stdout.write(
                f"{PYINFRA} is left out: it could not be installed:"
                f" {done.stderr.strip().splitlines()[-1:]}\n"
            )
            return None
    return work / "pyinfra" / "bin" / "pyinfra"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--nodes", type=int, default=1000, help="sshd processes (default: 1000, which take 1.5 GB)"
    )
    parser.add_argument(
        "--few",
        type=int,
        default=200,
        help="nodes for the programs that cost most: Ansible's and pyinfra (default: 200)",
    )
    parser.add_argument(
        "--simulated",
        type=int,
        default=10_000,
        help="recorded answers, 0 for none (default: 10000)",
    )
    parser.add_argument(
        "--dead",
        type=float,
        nargs="*",
        default=[0, 1, 10],
        help="per cent of dead nodes (default: 0 1 10)",
    )
    parser.add_argument(
        "--ssh-option",
        action="append",
        default=[],
        help="for every ssh but pyinfra's, such as KexAlgorithms=curve25519-sha256",
    )
    parser.add_argument("--no-pyinfra", action="store_true", help="install nothing")
    options = parser.parse_args()
    if os.geteuid() or not sys.platform.startswith("linux"):
        raise SystemExit(
            "bench-scale: expected root on Linux, for namespaces with sshd processes in them; see"
            " docs/scale.md"
        )
    with tempfile.TemporaryDirectory(prefix="unhang-scale-") as name:
        work = Path(name)
        sys.stdout.write(
            f"{os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]},"
            f" load before: {os.getloadavg()[0]:.1f}\n"
        )
        sys.stdout.write(f"measured by: {measured(['true'], os.environ, work).how}\n")
        if options.nodes:
            bench_ssh(options, work, None if options.no_pyinfra else ready_pyinfra(work))
        if options.simulated:
            bench_files(options, work)


if __name__ == "__main__":
    main()
