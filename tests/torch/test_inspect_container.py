"""`unhang inspect --container` at real jobs in real containers, looked at from the node: by name,
by ID, by namespace; and what an engine says otherwise."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_inspect import JOB, PATIENCE_S, inspect, wait_until_it_happens

from unhang.jobs.inspect.bundle import read_documents

PROJECT = Path(__file__).resolve().parents[2]
ENGINE = ["podman", "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
# Limits of its own, because the engine's defaults may be more than this machine may give; no
# network, because none is needed.
RUN = [
    *ENGINE,
    "run",
    "--network",
    "none",
    "--ulimit",
    "nofile=1024:1024",
    "--ulimit",
    "nproc=4096:4096",
]


def why_not() -> str:
    """Why no container runs here; "" when one does."""
    if os.geteuid() != 0 or not shutil.which("podman") or not shutil.which("runc"):
        return "needs root, podman and runc"
    done = subprocess.run(
        [*RUN, "--rm", "--rootfs", "/:O", "true"], capture_output=True, text=True, check=False
    )
    return done.stderr.strip()[-200:] or "podman run failed" if done.returncode else ""


needs_engine = pytest.mark.skipif(bool(why_not()), reason=f"no container runs here: {why_not()}")


@contextlib.contextmanager
def container(folder: Path, scene: str, *options: str):
    """A torchrun job of two ranks in a container with this machine's own files under an overlay;
    yields its name."""
    name = f"unhang-{folder.name}-{os.getpid()}"
    shared = [
        word
        for place in dict.fromkeys([str(PROJECT), sys.base_prefix])
        for word in ("--volume", f"{place}:{place}:ro")
    ]
    settings = {
        "INSPECT_JOB_FOLDER": str(folder),
        "OMP_NUM_THREADS": "1",
        "HOME": "/root",
        **dict(word.split("=", 1) for word in options if "=" in word),
    }
    given = [word for pair in settings.items() for word in ("--env", "=".join(pair))]
    extra = [word for word in options if "=" not in word]
    torchrun = (
        f"exec {sys.executable} -m torch.distributed.run --standalone --nproc-per-node=2 {JOB}"
        f" {scene} 1 gloo > {folder}/job.log 2>&1"
    )
    argv = [
        *RUN,
        "--detach",
        "--name",
        name,
        *shared,
        "--volume",
        f"{folder}:{folder}",
        *given,
        *extra,
        "--rootfs",
        "/:O",
        "sh",
        "-c",
        torchrun,
    ]
    try:
        subprocess.run(argv, check=True, capture_output=True)
        yield name
    finally:
        subprocess.run(
            [*ENGINE, "rm", "--force", "--time", "0", name], check=False, capture_output=True
        )


def inspected(name: str, wanted: str, *arguments: str) -> tuple[int, dict]:
    until = time.monotonic() + PATIENCE_S
    while True:
        code, found, errors = inspect("--container", name, "--gap", "1.5", *arguments)
        if found.get("state") == wanted or time.monotonic() > until:
            assert found.get("state") == wanted, (found, errors)
            return code, found


def field_of(name: str, field: str) -> str:
    return subprocess.run(
        [*ENGINE, "inspect", "--format", "{{" + field + "}}", name],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@needs_engine
def test_a_hang_in_a_container_is_told_from_the_node_by_name_by_id_and_by_namespace(tmp_path):
    with container(tmp_path, "never") as name:
        code, found = inspected(name, "hung")
        inspect("--container", name, "--gap", "1.5", "--out", str(tmp_path / "b.tar.gz"))
        first = field_of(name, ".State.Pid")
        others = [
            field_of(name, ".Id"),
            field_of(name, ".Id")[:12],
            os.readlink(f"/proc/{first}/ns/pid"),
            os.readlink(f"/proc/{first}/ns/pid")[5:-1],
        ]
        again = [inspected(other, "hung")[1] for other in others]
        code_of_another, nothing, errors = inspect("--container", name, "--pid", str(os.getpid()))
    assert code == 1
    assert [
        (suspect["rank"], "it sleeps in happen (inspect_job.py" in suspect["why"])
        for suspect in found["suspects"]
    ] == [(1, True)]
    assert [[suspect["rank"] for suspect in one["suspects"]] for one in again] == [[1]] * 4
    [document] = read_documents([tmp_path / "b.tar.gz"])
    why = document["sections"]["ras"]["probe"]["error"]
    assert "nothing listens at port 28028" in why  # of the container: it was asked there
    # without GPUs there is no NCCL that RAS could tell of
    assert not [row for row in found["unread"] if row["what"] == "ras"]
    assert (code_of_another, nothing) == (2, {})
    assert f"process {os.getpid()} is not in the container {name}" in errors


@needs_engine
def test_two_jobs_of_one_machine_are_kept_apart_by_their_containers(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        container(tmp_path / "a", "never") as hung,
        container(tmp_path / "b", "healthy") as healthy,
    ):
        inspected(hung, "hung")
        inspected(healthy, "running")


@needs_engine
def test_a_lock_and_a_dump_inside_the_container_are_read_through_its_root(tmp_path):
    """The container's overlay has them: at these paths the machine itself has nothing."""
    inside, bundle = "/var/tmp/unhang-inside", tmp_path / "b.tar.gz"
    settings = [
        f"TORCH_EXTENSIONS_DIR={inside}",
        "TORCH_FR_BUFFER_SIZE=200",
        "TORCH_FR_DUMP_TEMP_FILE=/var/tmp/unhang_fr_",
    ]
    with container(tmp_path, "never", *settings) as name:
        until = time.monotonic() + PATIENCE_S
        while (
            "flight recorder" not in inspected(name, "hung")[1]["headline"]
            and time.monotonic() < until
        ):
            time.sleep(0.5)
        lock = Path(f"/proc/{field_of(name, '.State.Pid')}/root{inside}/py311_cpu/fused/lock")
        lock.parent.mkdir(parents=True)
        lock.touch()
        _, found, _ = inspect("--container", name, "--gap", "1.5", "--out", str(bundle))
    [document] = read_documents([bundle])
    [cache] = document["sections"]["locks"]["caches"]
    assert [(row["path"], row["held"]) for row in cache["locks"]] == [
        (f"{inside}/py311_cpu/fused/lock", False)
    ]
    assert found["recorded"]["says"].startswith("rank 1 is waited for: 1 of 2 ranks")
    assert not Path(inside).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_container_without_an_engine_is_known_by_its_namespace(tmp_path):
    """As enroot, apptainer and bubblewrap make them: namespaces alone, no cgroup, no name."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(JOB),
        "never",
        "1",
        "gloo",
    ]
    environment = {**os.environ, "INSPECT_JOB_FOLDER": str(tmp_path), "OMP_NUM_THREADS": "1"}
    with (tmp_path / "job.log").open("wb") as log:
        argv = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", *command]
        launcher = subprocess.Popen(
            argv,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    try:
        wait_until_it_happens(tmp_path)
        [first] = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        looks = [
            inspected(os.readlink(f"/proc/{first}/ns/{kind}"), "hung")[1] for kind in ("pid", "mnt")
        ]
    finally:
        launcher.kill()
        launcher.wait()
    assert [[suspect["rank"] for suspect in found["suspects"]] for found in looks] == [[1], [1]]
    gone, _, errors = inspect("--container", "pid:[4026999999]")
    assert gone == 2
    assert "no process of this node is in the namespace pid:[4026999999]" in errors


@needs_engine
def test_what_the_engines_say_of_an_unknown_name_is_one_sentence():
    code, found, errors = inspect("--container", "nobody-called-it-so")
    assert (code, found) == (2, {})
    assert "container nobody-called-it-so does not run on this node" in errors
    assert "podman: " in errors and "no such container" in errors and "Error: Error" not in errors
    assert "not installed: " in errors and "enroot" in errors
    assert "needs no engine" in errors
    assert "Traceback" not in errors and "ValueError" not in errors


@needs_engine
def test_a_container_that_was_made_and_does_not_run_is_told(tmp_path):
    name = f"unhang-made-{os.getpid()}"
    subprocess.run(
        [*ENGINE, "create", "--network", "none", "--name", name, "--rootfs", "/:O", "true"],
        check=True,
        capture_output=True,
    )
    try:
        _, _, errors = inspect("--container", name)
    finally:
        subprocess.run([*ENGINE, "rm", "--force", name], check=False, capture_output=True)
    assert "podman: it is known and does not run" in errors


@pytest.mark.parametrize("name", ["--all", "a b", "$(id)", "x" * 200, "../../etc"])
def test_what_can_be_no_container_is_refused_before_an_engine_is_asked(name):
    code, _, errors = inspect(f"--container={name}")
    assert code == 2
    assert "must be the name or ID of a container" in errors
