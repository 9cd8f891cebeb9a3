"""The command that runs a Python in an image, for each runtime and launcher; the integration tests
run real containers."""

from __future__ import annotations

import json
import sys

import pytest
from smoke_runs import PATIENT, SMALL, smoke

from unhang.core.errors import UserError
from unhang.smoke.container import RUNTIMES, Container, choose_container

BY_LINE = [runtime for runtime in RUNTIMES if runtime != "pyxis"]


@pytest.mark.parametrize("runtime", BY_LINE)
def test_each_runtime_ends_in_the_image_and_its_python_and_sees_the_folder(runtime):
    argv = Container("users.img", runtime, "/opt/conda/bin/python", ("--own-option",)).argv(
        "/tmp/place"
    )
    assert argv[0] == runtime
    assert argv[-2:] == ["users.img", "/opt/conda/bin/python"]
    assert argv[argv.index("--own-option") + 1] == "users.img"
    assert any("/tmp/place" in word for word in argv)


@pytest.mark.parametrize("runtime", BY_LINE)
def test_without_a_folder_nothing_of_the_node_is_mounted(runtime):
    assert not {"--volume", "--bind", "--mount"} & set(Container("users.img", runtime).argv())


@pytest.mark.parametrize(
    "runtime, word",
    [
        ("docker", "--gpus"),
        ("podman", "nvidia.com/gpu=all"),
        ("apptainer", "--nv"),
        ("singularity", "--nv"),
    ],
)
def test_gpus_are_asked_for_as_the_runtime_wants_it_and_only_where_there_are_any(runtime, word):
    assert word in Container("users.img", runtime).argv()
    assert word not in Container("users.img", runtime, gpus=False).argv()


def test_docker_and_podman_keep_standard_input_open_which_is_the_leash():
    for runtime in ("docker", "podman"):
        argv = Container("users.img", runtime).argv()
        assert {"--interactive", "--rm"} <= set(argv)
        assert argv[argv.index("--network") : argv.index("--network") + 4] == [
            "--network",
            "host",
            "--ipc",
            "host",
        ]


def test_under_pyxis_srun_starts_the_container_and_the_program_is_the_images_python():
    container = choose_container(
        "nvcr.io#nvidia/pytorch:25.01-py3", None, None, ["--container-mounts=/data"], "slurm", True
    )
    assert container.runtime == "pyxis"
    assert container.program == ["python3"]
    assert container.srun_options()[0] == "--container-image=nvcr.io#nvidia/pytorch:25.01-py3"
    assert "--container-mounts=/data" in container.srun_options()


def test_another_runtime_under_slurm_is_a_program_of_the_task():
    container = choose_container("users.img", "enroot", None, [], "slurm", True)
    assert container.program[:2] == ["enroot", "start"]
    assert container.srun_options() == []


@pytest.mark.parametrize("runtime", ["docker", "podman", "enroot"])
def test_under_slurm_the_nodes_name_is_handed_into_the_container(runtime):
    argv = choose_container("users.img", runtime, None, [], "slurm", True).argv()
    assert argv[argv.index("--env") + 1] == "SLURMD_NODENAME"
    assert "--env" not in choose_container("users.img", runtime, None, [], "fabric", True).argv()


@pytest.mark.parametrize(
    "image, runtime, options, launcher",
    [
        (None, "podman", [], "fabric"),
        (None, None, ["--x"], "fabric"),
        ("users.img", "pyxis", [], "fabric"),
    ],
)
def test_what_does_not_go_together_is_refused(image, runtime, options, launcher):
    with pytest.raises(UserError):
        choose_container(image, runtime, None, options, launcher, True)


# Stands for docker: records its arguments, and runs the command after the image on this machine.
DOCKER = """#!/bin/sh
printf '%s\\n' "$@" >> {log}
while [ "$1" != users.img ]; do shift; done
shift
exec "$@"
"""


def test_locally_the_payload_is_carried_into_the_image_whose_files_are_its_own(tmp_path):
    log = tmp_path / "words"
    docker = tmp_path / "docker"
    docker.write_text(DOCKER.format(log=log))
    docker.chmod(0o755)
    path = f"{tmp_path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    done = smoke(
        "--nproc",
        1,
        *SMALL,
        *PATIENT,
        "--phases",
        "all_reduce",
        "--container-image",
        "users.img",
        "--python",
        sys.executable,
        PATH=path,
    )
    assert done.code == 0, done.stdout
    assert done.result["hosts"][0]["executable"] == sys.executable
    argv = log.read_text().splitlines()
    assert argv[0] == "run"
    assert "--gpus" not in argv
    assert not any(word.endswith("unhang_smoke.pyz") for word in argv)


def test_an_image_that_is_not_there_is_reported_in_the_runtimes_own_words(tmp_path):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Unable to find image users.img locally' >&2\nexit 125\n")
    docker.chmod(0o755)
    done = smoke("--nproc", 1, "--container-image", "users.img", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.code == 2
    assert "Unable to find image users.img" in done.suspects[0]["why"], json.dumps(done.suspects)
