"""What is set for a job that the watcher starts."""

from __future__ import annotations

import pytest

from unhang.jobs.watch.prepared import prepared_environment, torch_of

SIZE, OLD_SIZE = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
DUMP, OLD_DUMP = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"


@pytest.fixture
def launcher(tmp_path):
    """Makes a launcher in an environment with a release of torch, or without one."""

    def make(name, torch):
        (tmp_path / "env" / "bin").mkdir(parents=True)
        program = tmp_path / "env" / "bin" / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        if torch:
            (
                tmp_path
                / "env"
                / "lib"
                / "python3.12"
                / "site-packages"
                / f"torch-{torch}.dist-info"
            ).mkdir(parents=True)
        return str(program)

    return make


@pytest.mark.parametrize(
    ("name", "torch", "expected"),
    [
        ("torchrun", "2.9.1+cu128", {SIZE, DUMP}),
        ("python3.12", "2.13.0", {SIZE, DUMP}),
        ("accelerate", "2.6.0", {OLD_SIZE, OLD_DUMP}),
        ("torchrun", "", {SIZE, OLD_SIZE, DUMP, OLD_DUMP}),
        ("srun", "2.9.1", {SIZE}),  # a rank of another machine has no such folder
        ("mpirun", "", {SIZE, OLD_SIZE}),
        ("deepspeed", "2.9.1", {SIZE}),
    ],
)
def test_the_names_are_those_of_the_release_and_a_folder_only_where_all_ranks_are_here(
    launcher, tmp_path, name, torch, expected
):
    found = prepared_environment([launcher(name, torch), "train.py"], {}, tmp_path)
    assert set(found) == expected
    assert {found.get(SIZE), found.get(OLD_SIZE)} <= {"2000", None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({SIZE: "20000"}, {DUMP}),
        ({OLD_SIZE: "0"}, set()),  # somebody switched it off
        ({DUMP: "/scratch/dump_"}, {SIZE}),
    ],
)
def test_what_the_user_has_set_stays(launcher, tmp_path, given, expected):
    assert set(prepared_environment([launcher("torchrun", "2.9.1")], given, tmp_path)) == expected


def test_two_releases_side_by_side_or_odd_names_are_no_release(launcher, tmp_path):
    program = launcher("torchrun", "2.9.1")
    assert torch_of(program) == (2, 9)
    (tmp_path / "env" / "lib" / "python3.12" / "site-packages" / "torch-nightly.dist-info").mkdir()
    assert torch_of(program) is None
    assert torch_of("/no/such/program") is None
