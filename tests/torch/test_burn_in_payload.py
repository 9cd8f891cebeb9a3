"""The burn-in with real torch on the CPU: results are exact in any order, a flipped bit is found in
every type, clocks are read; and dcgmi runs before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from fakes.nvml import build_fake_nvml, write_profile
from smoke_runs import (
    DEADLINE_S,
    PAYLOAD,
    PROJECT,
    environment,
    load_payload,
    payload_processes,
    smoke,
)

from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema

payload = load_payload()
TYPES = ("bfloat16", "float16", "float8_e4m3fn", "int8", "tf32", "float32")
ONE = ("--phases", "burn_in", "--nproc", "2")
ANSWERS = PROJECT / "tests" / "fixtures" / "dcgm"


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def product_of(torch, name, rows=64, inner=64):
    return payload.Product(torch, torch.device("cpu"), name, rows, inner)


@pytest.mark.parametrize("name", TYPES)
def test_a_product_is_what_whole_numbers_say_and_a_flipped_bit_changes_its_total(torch, name):
    product = product_of(torch, name)
    result = product.run()
    assert int(product.total_of(result)) == product.total
    assert product.why_wrong(result) is None
    product.flip(result)
    assert int(product.total_of(result)) != product.total
    why = product.why_wrong(result)
    assert why.startswith("1 wrong elements: row 1, column 13 expected 0x") and why.endswith(
        ", bits 5"
    )
    expected, found = (int(word.strip(","), 16) for word in why.split() if word.startswith("0x"))
    assert expected ^ found == 1 << 5


def test_sums_in_another_order_have_the_same_bits(torch):
    """In float32, which adds in the given order: with these inputs no order causes rounding."""
    product = product_of(torch, "float32", 32, 16384)
    order = torch.randperm(product.inner, generator=torch.Generator().manual_seed(1))
    backwards = torch.zeros(32, 32)
    for place in order.tolist():
        backwards += product.left[:, place, None] * product.right[place]
    assert torch.equal(backwards.view(torch.int32), product.run().view(torch.int32))


@pytest.mark.parametrize("name", TYPES)
def test_inputs_at_full_size_stay_within_what_accumulators_hold(torch, name):
    kind = payload.KINDS[name]
    rows, columns = (
        payload.pattern(torch, "cpu", 4 * kind.most_inner, 0, seed, kind.bound, torch.float64)
        .reshape(4, -1)
        .abs()
        for seed in (1, 2)
    )
    assert float((rows @ columns.t()).max()) <= kind.limit


def test_inputs_whose_sums_could_round_are_refused(torch, monkeypatch):
    monkeypatch.setitem(payload.KINDS, "bfloat16", payload.KINDS["bfloat16"]._replace(bound=2000))
    with pytest.raises(AssertionError, match="expected sums of at most 16777216"):
        product_of(torch, "bfloat16")


class Rank:
    """A rank as the phase sees it, without a group. seen: how many ranks found a type inexact."""

    def __init__(self, torch, drills=(), seen=1):
        self.torch, self.rank, self.world, self.device = torch, 1, 2, torch.device("cpu")
        self.plan = {
            "drills": [{"rank": 1, "fault": "corrupt", "phase": "burn_in"} for _ in drills]
        }
        self.store = types.SimpleNamespace(add=lambda key, more: seen)

    def step(self, name, limit_s=None):
        pass


@pytest.mark.parametrize("name", TYPES)
def test_a_flipped_bit_is_found_in_every_type_even_if_the_time_is_over(torch, name):
    product, row = product_of(torch, name), {"results": 0, "seconds": 0.0}
    with pytest.raises(
        payload.Failed,
        match=(
            f"expected the exactly known product in {name}, found 1 wrong elements: row 1,"
            " column 13"
        ),
    ):
        payload.burn(Rank(torch, drills=[1]), product, 0.0, row, payload.Clocks(Rank(torch)))
    payload.burn(Rank(torch), product, 0.0, row, payload.Clocks(Rank(torch)))
    assert row["results"] == 1


def test_a_type_that_torch_lacks_is_left_out_and_a_gpu_that_failed_is_not(torch):
    class Lacking:
        """torch, whose products fail so."""

        def __init__(self, message):
            self.message = message

        def __getattr__(self, name):
            return getattr(torch, name)

        def matmul(self, *_):
            raise RuntimeError(self.message)

    left_out = {}
    run = Rank(Lacking("addmm_impl_cpu_ not implemented"))
    run.device = torch.device("cpu")
    assert payload.prepare(run, "bfloat16", left_out) == []
    assert left_out == {"bfloat16": "addmm_impl_cpu_ not implemented"}
    assert (
        payload.prepare(
            Rank(Lacking("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling")), "bfloat16", {}
        )
        == []
    )
    with pytest.raises(RuntimeError, match="uncorrectable ECC"):
        payload.prepare(
            Rank(Lacking("CUDA error: uncorrectable ECC error encountered")), "bfloat16", {}
        )


def test_the_clocks_of_a_real_gpu_are_read(torch, tmp_path):
    """Of a libnvidia-ml.so.1 with the recorded answers."""
    driver = fake_driver(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(PAYLOAD)!r})\n" + "import ctypes, json, types\n"
        "from unhang_smoke.burn_clocks import Clocks\nfrom unhang_smoke.nvml import call,"
        " nvml_handles\n"
        "library = ctypes.CDLL('libnvidia-ml.so.1')\ncall(library, 'nvmlInit_v2')\nuuid ="
        " nvml_handles(library)[1][1][4:]\n"
        "cuda = types.SimpleNamespace(get_device_properties=lambda device:"
        " types.SimpleNamespace(uuid=uuid))\n"
        "clocks = Clocks(types.SimpleNamespace(torch=types.SimpleNamespace(cuda=cuda),"
        " device=types.SimpleNamespace(type='cuda')))\n"
        "clocks.read()\nclocks.read()\nprint(json.dumps(clocks.report()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
        env=environment(**driver),
    )
    found = json.loads(done.stdout)
    assert 50 < found["power_w"] < 700 and found["sm_mhz"] > 0 and 10 < found["temperature_c"] < 95
    assert all(0 < share <= 1 for share in found["held_back"].values())


def fake_driver(folder):
    """Variables with which programs load it."""
    build_fake_nvml(str(folder))
    write_profile(
        str(PROJECT / "tests" / "fixtures" / "h200x2" / "nvml.json"), str(folder / "profile")
    )
    return {"LD_LIBRARY_PATH": str(folder), "UNHANG_FAKE_NVML_PROFILE": str(folder / "profile")}


def test_the_command_passes_and_tells_what_was_compared():
    done = smoke(*ONE, "--burn-in", "2s")
    assert list(check_schema(done.result, read_schema("smoke-1"))) == []
    assert (done.code, done.result["verdict"]) == (0, "pass")
    rows = done.result["burn_in"]["ranks"]
    assert [(row["rank"], set(row["types"]) | set(row["left_out"])) for row in rows] == [
        (0, {*TYPES}),
        (1, {*TYPES}),
    ]
    assert all(one["results"] > 0 for row in rows for one in row["types"].values())
    assert done.result["burn_in"]["dcgm"] == []


def test_the_command_finds_the_flip_of_a_drill_at_once_and_leaves_nothing_behind():
    done = smoke(*ONE, "--burn-in", "30m", "--drill", "1:corrupt:burn_in")
    assert list(check_schema(done.result, read_schema("smoke-1"))) == []
    [suspect] = done.suspects
    assert (done.code, suspect["rank"], suspect["phase"]) == (1, 1, "burn_in")
    assert suspect["why"].startswith(
        "expected the exactly known product in bfloat16, found 1 wrong elements: row 1, column 13"
    )
    assert done.result["experiments"] == []
    assert payload_processes() == {}


def test_sigterm_ends_a_burn_in_with_all_its_ranks():
    plan = {
        "backend": "gloo",
        "nproc": 2,
        "rank_offset": 0,
        "world_size": 2,
        "master_address": "127.0.0.1",
        "master_port": free_port(),
    }
    plan |= {
        "phases": ["burn_in"],
        "burn_in_s": 3600.0,
        "total_timeout_s": 4000.0,
        "gloo_interface": "lo",
    }
    argv = [sys.executable, str(PAYLOAD), "node", "--plan", json.dumps(plan)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env=environment(OMP_NUM_THREADS="1")
    ) as agent:
        events = []
        for line in agent.stdout:
            events.append(json.loads(line))
            if (events[-1]["e"], events[-1].get("phase")) == ("phase_begin", "burn_in"):
                agent.send_signal(signal.SIGTERM)
        agent.wait(DEADLINE_S)
    assert (events[-1]["e"], events[-1]["reason"]) == ("node_end", "a signal")
    assert payload_processes() == {}


def free_port():
    from unhang.smoke.local import free_port

    return free_port()


@pytest.fixture
def dcgmi(tmp_path, monkeypatch):
    """dcgmi(text of a shell script): installs the script as dcgmi on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def install(text):
        (tmp_path / "dcgmi").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "dcgmi").chmod(0o755)

    return install


def never():
    time.sleep(0.01)
    return False


def test_without_dcgmi_nothing_is_reported(dcgmi):
    assert payload.run_dcgm(90.0, never) is None


def test_its_json_leaves_whole_with_the_suite_that_fits_the_time(dcgmi, tmp_path):
    dcgmi(
        f'echo "$@" > {tmp_path}/words; echo "a line before"; cat {ANSWERS}/4-pcie-fails.json;'
        " exit 226"
    )
    shown = payload.run_dcgm(600.0, never)
    assert (tmp_path / "words").read_text().split() == ["diag", "-r", "2", "-j"]
    assert (shown["level"], shown["code"]) == (2, 226)
    assert shown["answer"] == json.loads((ANSWERS / "4-pcie-fails.json").read_text())
    assert payload.run_dcgm(90.0, never)["level"] == 1


def test_words_that_are_no_json_and_an_answer_without_end_are_cut(dcgmi):
    dcgmi(
        'echo "Error: unable to establish a connection to the specified host: localhost" >&2;'
        " exit 255"
    )
    assert (
        payload.run_dcgm(90.0, never)["answer"]
        == "Error: unable to establish a connection to the specified host: localhost"
    )
    dcgmi("""python3 -c 'print("{\\"x\\": \\"" + "y" * 9000000 + "\\"}")'""")
    assert len(payload.run_dcgm(90.0, never)["answer"]) <= 2000


@pytest.mark.parametrize("way", ["its deadline", "the launcher"])
def test_one_that_hangs_is_ended_politely_first_and_with_all_that_it_started(
    dcgmi, tmp_path, monkeypatch, way
):
    monkeypatch.setitem(payload.LIMIT_S, 1, 0.5 if way == "its deadline" else DEADLINE_S)

    def stopped():
        return way == "the launcher" and (tmp_path / "child").exists()

    dcgmi(
        f"trap 'touch {tmp_path}/asked' TERM; sleep 3000 & echo $! > {tmp_path}/child; while :; do"
        " wait; done"
    )
    assert payload.run_dcgm(90.0, stopped)["code"] != 0
    assert (tmp_path / "asked").exists()
    child, until = (
        Path("/proc", (tmp_path / "child").read_text().strip()),
        time.monotonic() + DEADLINE_S,
    )
    while child.exists() and " Z " not in (child / "stat").read_text() and time.monotonic() < until:
        time.sleep(0.02)
    assert not child.exists() or " Z " in (child / "stat").read_text()


def test_a_node_that_dcgm_fails_fails_in_the_burn_in(dcgmi, tmp_path):
    dcgmi(f"cat {ANSWERS}/4-pcie-fails.json; exit 226")
    done = smoke(
        *ONE,
        "--burn-in",
        "2s",
        "--backend",
        "nccl",
        **fake_driver(tmp_path),
        PATH=os.environ["PATH"],
    )
    assert done.code != 0
    assert done.result["burn_in"]["dcgm"][0]["verdict"] == "fail"
    assert any(
        row["why"].startswith("dcgmi diag: pcie: GPU 1 runs at PCIe link width 8")
        for row in done.suspects
    ), done.suspects
