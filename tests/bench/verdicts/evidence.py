"""What record.py keeps of a scene: asked of the job, trimmed, and without names and paths of the
machine."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import os
import pickle
import re
import shutil
import socket
import subprocess
import sysconfig
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scenes import truth

LAST_ENTRIES = 100
RAS_REQUESTS = {
    "ras.txt": b"timeout 3\nverbose status\n",
    "ras.json": b"set format json\ntimeout 3\nverbose status\n",
}
RAS_PORT = 28028  # NCCL's own; several jobs at a time need others


def ask_ras(port: int, folder: Path) -> None:
    """Its text and its JSON. A connection may land on a process that is stopped, so each has some
    tries; a service without JSON leaves that file out."""

    def one(name: str) -> None:
        for _ in range(6):
            with contextlib.suppress(OSError):
                answer = _ask_once(port, RAS_REQUESTS[name])
                if len(answer) > 200:
                    (folder / name).write_bytes(answer)
                    return

    with ThreadPoolExecutor(len(RAS_REQUESTS)) as pool:
        list(pool.map(one, RAS_REQUESTS))


def _ask_once(port: int, request: bytes) -> bytes:
    """Raises OSError. The first word comes at once from a process that lives."""
    answer = b""
    with socket.create_connection(("localhost", port), timeout=1.0) as link:
        link.sendall(request.partition(b"\n")[0] + b"\n")
        answer += link.recv(1 << 16)
        link.settimeout(7.0)
        link.sendall(request.partition(b"\n")[2])
        while piece := link.recv(1 << 18):
            answer += piece
    return answer.removeprefix(b"OK\n").removeprefix(b"OK\n")


def stacks_of(pids: dict[int, int], folder: Path, slow: float) -> None:
    """py-spy's text and JSON of each rank, without stopping it."""
    place = folder / "stacks"
    place.mkdir()

    def one(job: tuple[int, int, str]) -> None:
        rank, pid, ending = job
        argv = ["py-spy", "dump", "--nonblocking", "--pid", str(pid)]
        argv += ["--json"] if ending == "json" else []
        for _ in range(3):
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = subprocess.run(argv, capture_output=True, timeout=5 * slow)
                if done.returncode == 0:
                    (place / f"rank{rank}.{ending}").write_bytes(done.stdout)
                    return

    jobs = [(rank, pid, ending) for ending in ("txt", "json") for rank, pid in pids.items()]
    with ThreadPoolExecutor(len(pids)) as pool:
        list(pool.map(one, jobs))


@dataclass(frozen=True)
class Machine:
    """What must not be kept: [(pattern, what stands for it)]; a host's name is its rank's."""

    host: str
    replaced: list[tuple[re.Pattern[str], str]]
    host_of: Callable[[int], str]

    @classmethod
    def of(cls, python: str, folder: Path, host_of: Callable[[int], str]) -> Machine:
        paths = {
            str(folder / "project"): "/home/user/project",
            str(folder): "/home/user/run",
            **python_paths(python),
            str(Path.home()): "/home/user",
        }
        ordered = sorted(paths.items(), key=lambda pair: -len(pair[0]))
        replaced = [(re.compile(re.escape(a) + r"(?![\w-])"), b) for a, b in ordered if len(a) > 1]
        replaced.append((re.compile(r"\b281[23]\d\b"), str(RAS_PORT)))
        return cls(socket.gethostname(), replaced, host_of)

    def plain(self, text: str, rank: int | None) -> str:
        for pattern, other in self.replaced:
            text = pattern.sub(other, text)
        name = self.host_of(rank) if rank is not None else "gpu01"
        return re.sub(rf"(?<![\w.-]){re.escape(self.host)}(?![\w-])", name, text)


@cache
def python_paths(python: str) -> dict[str, str]:
    """{a folder of this Python: where a plain installation has it}"""
    show = (
        "import json, os, sys, sysconfig, torch; print(json.dumps([sysconfig.get_paths()['stdlib'],"
        " os.path.dirname(os.path.dirname(torch.__file__)), sys.executable,"
        " os.path.realpath(sys.executable), sys.prefix, sys.base_prefix]))"
    )
    done = subprocess.run([python, "-c", show], capture_output=True, text=True, check=True)
    stdlib, site, executable, real, prefix, base = json.loads(done.stdout.splitlines()[-1])
    version = "python" + sysconfig.get_python_version()
    return {
        prefix: "/opt/venv",
        base: "/usr",
        stdlib: f"/usr/lib/{version}",
        site: f"/opt/venv/lib/{version}/site-packages",
        real: f"/usr/bin/{version}",
        executable: "/opt/venv/bin/python3",
    }


@cache
def versions(python: str) -> dict[str, Any]:
    """Of torch, CUDA, NCCL, the driver and the GPU."""
    show = (
        "import json, torch; on = torch.cuda.is_available(); print(json.dumps({'torch':"
        " torch.__version__, 'cuda': torch.version.cuda, 'nccl': '.'.join(map(str,"
        " torch.cuda.nccl.version())) if on else None, 'gpu': torch.cuda.get_device_name() if on"
        " else None, 'gpus': torch.cuda.device_count()}))"
    )
    done = subprocess.run([python, "-c", show], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if shutil.which("nvidia-smi"):
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(asked, capture_output=True, text=True).stdout.split()
        found["driver"] = driver[0] if driver else None
    return found


def pack(
    job: Any, lines: list[tuple[int, str]], ended: dict[int, str], machine: Machine, setup: Any
) -> int:
    """Writes the archive of one scene; its size in bytes."""
    scene = job.scene
    told = {
        "shape": scene.shape,
        "kind": scene.kind,
        "world": setup.world,
        "step": scene.step,
        **truth(scene),
        "ended": {str(rank): how for rank, how in ended.items()},
        "hosts": {str(rank): machine.host_of(rank) for rank in ended},
        "pids": {str(rank): process.pid for rank, process in enumerate(job.ranks)},
        "backend": setup.backend,
        **versions(setup.python),
    }
    files = {
        "truth.json": json.dumps(told, indent=1).encode(),
        "log.txt": log_text(lines, machine).encode(),
        **{
            f"dumps/{path.name}": trimmed(path.read_bytes(), machine)
            for path in sorted((job.folder / "dumps").glob("_dump_*"))
            if path.name.removeprefix("_dump_").isdigit()
        },
    }
    for path in [*job.folder.glob("ras.*"), *sorted(job.folder.glob("stacks/rank*"))]:
        rank = int(path.stem[4:]) if path.stem.startswith("rank") else None
        text = machine.plain(path.read_text(encoding="utf-8", errors="replace"), rank)
        files[str(path.relative_to(job.folder))] = text.encode()
    return write_archive(setup.out / f"{scene.name}.tar.xz", files)


def log_text(lines: list[tuple[int, str]], machine: Machine) -> str:
    """As torchrun prints it: torch's own lines name their rank, the others get it."""
    return "".join(
        (f"{'' if line.startswith('[rank') else f'[rank{rank}]:'}{machine.plain(line, rank)}\n")
        for rank, line in lines
    )


def trimmed(content: bytes, machine: Machine) -> bytes:
    """A dump with its last entries; it is this process's own job that wrote it."""
    dump = pickle.loads(content)
    dump["entries"] = dump["entries"][-LAST_ENTRIES:]

    def plain(value: Any) -> Any:
        if isinstance(value, str):
            return machine.plain(value, None)
        if isinstance(value, dict):
            return {plain(key): plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(plain(item) for item in value)
        return value

    return pickle.dumps(plain(dump), protocol=2)


def write_archive(path: Path, files: dict[str, bytes]) -> int:
    """tar.xz without owners and times; its size."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    path.write_bytes(lzma.compress(whole.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    os.chmod(path, 0o644)
    return path.stat().st_size
