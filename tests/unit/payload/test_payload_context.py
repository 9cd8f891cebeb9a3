"""A CUDA context is created in parallel with the import of torch, with a libcuda that only records
its calls."""

from __future__ import annotations

import json
import subprocess
import sys

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
