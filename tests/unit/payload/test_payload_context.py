"""A CUDA context is created in parallel with the import of torch, with a libcuda that only records
its calls; and communicators in parallel with other phases."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import types

import pytest
from smoke_runs import DEADLINE_S, PAYLOAD, load_payload

payload = load_payload()
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
static int note(const char *what, int code) {
    FILE *calls = fopen(getenv("FAKE_CALLS"), "a");
    fprintf(calls, "%s %s\\n", what, getenv("CUDA_MODULE_LOADING"));
    fclose(calls);
    return code;
}
int cuInit(unsigned flags) { return note("init", atoi(getenv("FAKE_CODE"))); }
int cuDeviceGet(int *device, int index) { *device = index + 100; return note("device", index < 8 ? 0 : 101); }
int cuDevicePrimaryCtxRetain(void **context, int device) { char text[32]; sprintf(text, "retain %d", device); return note(text, 0); }
"""
PROGRAM = f"""
import json, sys
sys.path.insert(0, {str(PAYLOAD)!r})
from unhang_smoke import context as payload
maker = payload.begin_context(int(sys.argv[1]))
maker.join()
print(json.dumps(payload.retain_context(int(sys.argv[1]))))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Folder of the fake libcuda.so.1."""
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "cuda.c").write_text(DRIVER)
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-fPIC",
            "-w",
            "-o",
            str(folder / "libcuda.so.1"),
            str(folder / "cuda.c"),
        ],
        check=True,
    )
    return folder


def asked(library, tmp_path, index=3, code=0, **more):
    """(whether there was a context, calls of the driver) of a process that begins one and then asks
    again."""
    calls = tmp_path / "calls"
    calls.touch()
    variables = {
        "LD_LIBRARY_PATH": str(library),
        "FAKE_CALLS": str(calls),
        "FAKE_CODE": str(code),
        **more,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(index)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
        env=variables,
    )
    return json.loads(done.stdout), calls.read_text().splitlines()


def test_the_ranks_own_gpu_gets_its_context_and_kernels_are_loaded_when_they_are_used(
    library, tmp_path
):
    found, calls = asked(library, tmp_path)
    assert found is True
    assert calls[:3] == ["init LAZY", "device LAZY", "retain 103 LAZY"]


def test_a_setting_of_the_users_stays(library, tmp_path):
    assert asked(library, tmp_path, CUDA_MODULE_LOADING="EAGER")[1][0] == "init EAGER"


@pytest.mark.parametrize(
    "options, last", [({"code": 999}, "init LAZY"), ({"index": 8}, "device LAZY")]
)
def test_what_the_driver_refuses_is_left_for_torch_to_meet(library, tmp_path, options, last):
    found, calls = asked(library, tmp_path, **options)
    assert (found, calls[-1]) == (False, last)


def test_without_a_driver_there_is_no_context(tmp_path):
    assert asked(tmp_path, tmp_path) == (False, [])


class Backend:
    """Of a group whose communicator takes until `ready`."""

    def __init__(self, ready, problem=None):
        self.ready, self.problem, self.device = ready, problem, None

    def eager_connect_single_device(self, device):
        self.device = device
        self.ready.wait(20)
        if self.problem:
            raise self.problem


def rank_of_four(backends):
    """A run on GPU 1 whose groups have these backends, in the order in which they are made."""
    made, chosen = (
        iter(
            [
                types.SimpleNamespace(_get_backend=lambda device, one=backend: one)
                for backend in backends
            ]
        ),
        [],
    )
    cuda = types.SimpleNamespace(set_device=chosen.append)
    dist = types.SimpleNamespace(new_group=lambda ranks: next(made))
    device = types.SimpleNamespace(type="cuda", index=1)
    steps = []
    run = types.SimpleNamespace(
        world=4,
        rank=1,
        device=device,
        dist=dist,
        torch=types.SimpleNamespace(cuda=cuda),
        step=lambda name, limit: steps.append(name),
    )
    return run, steps, chosen


def test_the_communicators_of_more_groups_come_about_at_the_same_time_on_the_ranks_own_gpu():
    together = threading.Barrier(3, timeout=20)
    backends = [Backend(together) for _ in range(5)]
    run, steps, chosen = rank_of_four(backends)
    groups = payload.OverlapGroups(run)
    groups.await_all(run)
    assert [backend.device for backend in backends] == [
        run.device,
        run.device,
        None,
        None,
        run.device,
    ]
    assert chosen == [run.device] * 3
    assert [ranks for ranks, _ in groups.mesh] == [[0, 1], [1, 3]]
    assert steps == ["create more groups", "wait for the communicators of more groups"]


def test_what_goes_wrong_in_making_them_is_told_where_they_are_used():
    ready = threading.Event()
    ready.set()
    run, _, _ = rank_of_four(
        [
            Backend(ready),
            Backend(ready),
            Backend(ready),
            Backend(ready),
            Backend(ready, RuntimeError("NCCL error")),
        ]
    )
    groups = payload.OverlapGroups(run)
    with pytest.raises(RuntimeError, match="NCCL error"):
        groups.await_all(run)


def test_a_torch_without_such_a_call_makes_them_with_their_first_collective():
    run, _, _ = rank_of_four([object()] * 5)
    payload.OverlapGroups(run).await_all(run)


def leaving(destroy):
    """(a run whose groups are there and left by `destroy`, its groups, the devices that its threads
    chose)."""
    run, _, chosen = rank_of_four([object()] * 5)
    groups = payload.OverlapGroups(run)
    groups.await_all(run)
    chosen.clear()
    run.dist.destroy_process_group = destroy
    return run, groups, chosen


def test_groups_are_left_at_the_same_time_on_the_ranks_own_gpu():
    together, left = threading.Barrier(3, timeout=20), []

    def destroy(group):
        together.wait()
        left.append(group)

    run, groups, chosen = leaving(destroy)
    groups.destroy(run)
    assert sorted(map(id, left)) == sorted(
        map(id, [groups.second] + [group for _, group in groups.mesh])
    )
    assert chosen == [run.device] * 3


def test_what_goes_wrong_in_leaving_a_group_is_reported():
    def destroy(group):
        raise RuntimeError("NCCL error in destroy")

    run, groups, _ = leaving(destroy)
    with pytest.raises(RuntimeError, match="NCCL error in destroy"):
        groups.destroy(run)
