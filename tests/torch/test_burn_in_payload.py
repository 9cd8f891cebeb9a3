"""The burn-in with real torch on the CPU: results are exact in any order, a flipped bit is found wherever it is, SIGTERM ends all processes."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.nvml import build_fake_nvml, write_profile
from smoke_runs import DEADLINE_S, PROJECT, command, environment

from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.core.verdict.streams import MOST_LINE_BYTES

PAYLOAD = PROJECT / "roles" / "smoke_test" / "files" / "unhang_burn_in.py"
TYPES = ("bfloat16", "float16", "float8_e4m3fn", "int8", "tf32", "float32")


@pytest.fixture(scope="module")
def payload():
    spec = importlib.util.spec_from_file_location("unhang_burn_in", PAYLOAD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def workers_left():
    """pids of running agents and workers of a burn-in."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                argv, state = (folder / "cmdline").read_bytes(), (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(PAYLOAD).encode() in argv and state != "Z":
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("name", TYPES)
def test_a_product_is_what_whole_numbers_say_and_a_flipped_bit_changes_its_total(payload, torch, name):
    product, report = payload.make_product(torch, torch.device("cpu"), name, 64, 64)
    assert report["status"] == "ready", report
    result = product.run()
    assert int(product.total_of(result)) == product.total
    assert product.wrong_places(result) == (0, [])
    product.flip(result, 77, 5)
    assert int(product.total_of(result)) != product.total
    count, (place,) = product.wrong_places(result)
    assert (count, place["where"], place["bits"]) == (1, "row 1, column 13", [5])
    assert int(place["expected"], 16) ^ int(place["found"], 16) == 1 << 5
    assert int(place["address"], 16) == result.data_ptr() + 77 * result.element_size()


def test_sums_in_another_order_have_the_same_bits(payload, torch):
    """In float32, which adds in the given order: with these inputs no order causes rounding."""
    product, _ = payload.make_product(torch, torch.device("cpu"), "float32", 32, 16384)
    order = torch.randperm(product.inner, generator=torch.Generator().manual_seed(1))
    backwards = torch.zeros(32, 32)
    for place in order.tolist():
        backwards += product.left[:, place, None] * product.right[place]
    assert torch.equal(backwards.view(torch.int32), product.run().view(torch.int32))


@pytest.mark.parametrize("name", TYPES)
def test_inputs_at_full_size_stay_within_what_accumulators_hold(payload, torch, name):
    kind = payload.KINDS[name]
    rows = payload.pattern(torch, "cpu", 4 * kind.most_inner, 0, 1, kind.bound, torch.float64).reshape(4, -1).abs()
    columns = payload.pattern(torch, "cpu", 4 * kind.most_inner, 0, 2, kind.bound, torch.float64).reshape(4, -1).abs()
    assert float((rows @ columns.t()).max()) <= kind.limit


def test_inputs_whose_sums_could_round_are_refused(payload, torch, monkeypatch):
    monkeypatch.setitem(payload.KINDS, "bfloat16", payload.KINDS["bfloat16"]._replace(bound=2000))
    with pytest.raises(AssertionError, match="expected sums of magnitudes of at most 16777216"):
        payload.Product(torch, torch.device("cpu"), "bfloat16", 64, 64)


@pytest.mark.parametrize("complement", [False, True])
def test_every_pattern_is_read_back_and_a_flipped_bit_of_it_is_found(payload, torch, complement):
    memory = payload.Memory(torch, torch.device("cpu"), 2**16, 2**17 + 100)
    assert memory.size == 2**17
    for name in payload.PATTERNS:
        memory.fill(name, complement)
        assert memory.wrong_places() == (0, [])
        memory.flip(77, 40)
        count, (place,) = memory.wrong_places()
        assert (count, place["bits"]) == (1, [40])
        assert int(place["address"], 16) == memory.blocks[-1].data_ptr() + 8 * 77


def test_each_cell_of_memory_holds_both_values(payload, torch):
    for name in payload.PATTERNS:
        one, other = (payload.words(torch, "cpu", name, complement, 5, 100) for complement in (False, True))
        assert bool(((one ^ other) == -1).all())


def test_a_gpu_that_failed_is_told_from_a_type_that_it_has_not(payload):
    assert payload.is_fault(RuntimeError("CUDA error: uncorrectable ECC error encountered"))
    assert not payload.is_fault(RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`"))
    assert not payload.is_fault(RuntimeError("torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0"))


def test_a_burn_in_refuses_gpus_on_which_somebody_is(payload):
    free = {"used_bytes": 600 << 20, "processes": []}
    plan = {"device": "cuda"}
    assert payload.refusals(plan, {"problem": None, "settings": [free, free]}) == []
    taken = payload.refusals(plan, {"problem": None, "settings": [free, {**free, "processes": [4711]}, {**free, "used_bytes": 9 << 30}]})
    assert [reason.split(":")[0] for reason in taken] == ["GPU 1", "GPU 2"]
    assert "4711" in taken[0]
    assert payload.refusals(plan, {"problem": "NVML did not answer within 10 s: the driver hangs", "settings": []}) != []


def test_readings_of_hours_take_no_more_room_than_those_of_a_minute(payload):
    tally = payload.Tally()
    for second in range(5000):
        tally.add("GPU-1", "int8", {"power_w": 600.0 + second % 2, "sm_mhz": 1700, "energy_j": 650.0 * second, "reasons": ["power cap"]}, float(second))
    (row,) = tally.report()
    assert (row["samples"], row["power_w"], row["reasons"]) == (5000, {"mean": 600.5, "least": 600.0, "most": 601.0}, {"power cap": 5000})
    assert tally.mean_power() == {"GPU-1": 650.0}


def test_looks_of_a_week_fit_into_the_line_in_which_they_leave(payload):
    looks = payload.Looks(False)
    moved = {f"GPU {gpu} link {link} {kind} errors": 10**9 for gpu in range(8) for link in range(18) for kind in ("replay", "recovery", "CRC")}
    looks.keep({"counters": dict.fromkeys(moved, 0), "problem": None}, "before")
    for _ in range(600):
        looks.keep({"counters": moved, "problem": None}, "during")
    looks.keep({"counters": moved, "problem": None}, "after")
    assert (looks.rows[0]["when"], looks.rows[-1]["when"]) == ("before", "after")
    assert len(json.dumps(looks.rows)) < MOST_LINE_BYTES - 30_000


def test_sensors_read_what_two_real_gpus_answered(tmp_path):
    """Of a libnvidia-ml.so.1 with the recorded answers; a value that was not recorded is None."""
    build_fake_nvml(str(tmp_path))
    write_profile(str(PROJECT / "tests" / "fixtures" / "h200x2" / "nvml.json"), str(tmp_path / "profile"))
    driver = environment(LD_LIBRARY_PATH=str(tmp_path), UNHANG_FAKE_NVML_PROFILE=str(tmp_path / "profile"))
    argv = [sys.executable, str(PAYLOAD), "sensors", "--period", "0.01"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=driver) as child:
        first, reading = (json.loads(child.stdout.readline()) for _ in range(2))
        child.stdin.close()
        child.stdout.read()
    assert first["problem"] is None
    assert [row["uuid"][:4] for row in first["settings"]] == ["GPU-", "GPU-"]
    assert {row["power_limit_mw"] for row in first["settings"]} == {700000}
    assert {tuple(row["ecc"]) for row in first["settings"]} == {(1, 1)}
    assert len(reading["gpus"]) == 2
    assert all(50 < gpu["power_w"] < 700 and gpu["sm_mhz"] > 0 and 10 < gpu["temperature_c"] < 95 for gpu in reading["gpus"])


def test_the_command_finds_the_flip_of_a_drill_and_leaves_nothing_behind():
    argv = command("--backend", "gloo", "--burn-in", "2s", "--drill", "1:collective", "--format", "json")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, env=environment(), stdin=subprocess.DEVNULL, check=False)
    document = json.loads(done.stdout)
    assert list(check_schema(document, read_schema("burn-in-1"))) == []
    assert (done.returncode, document["verdict"]) == (1, "fail"), done.stderr[-2000:]
    assert [(one["gpu"], one["kind"]) for one in document["failures"]] == [(1, "wrong result")]
    (wrong,) = document["wrong"]
    assert (wrong["what"], wrong["elements"], wrong["places"][0]["bits"]) == ("collective", 1, [5])
    assert [set(row["done"]) for row in document["gpus"]] == [{*TYPES, "memory", "collective"}] * 2
    assert workers_left() == []


@pytest.mark.parametrize("where", ["int8", "memory", "collective"])
def test_a_drill_strikes_also_where_the_time_is_over_after_the_first_round(where):
    plan = {"device": "cpu", "nproc": 2, "duration_s": 0.001, "round_s": 0.001, "types": ["int8"], "drill": {"gpu": 1, "where": where}}
    argv = [sys.executable, str(PAYLOAD), "node", "--plan", json.dumps(plan)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, env=environment(), stdin=subprocess.DEVNULL, check=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(event["gpu"], event["what"], event["elements"]) for event in events if event["e"] == "wrong"] == [(1, where, 1)]


def test_sigterm_ends_agent_and_workers_and_what_was_done_is_reported():
    plan = {"device": "cpu", "nproc": 2, "duration_s": 3600.0, "round_s": 0.5, "drill": {"gpu": 0, "where": "int8"}}
    agent = subprocess.Popen([sys.executable, str(PAYLOAD), "node", "--plan", json.dumps(plan)], stdout=subprocess.PIPE, text=True, env=environment())
    with agent:
        events = []
        for line in agent.stdout:
            events.append(json.loads(line))
            if events[-1]["e"] == "progress" and events[-1]["wrong"]:
                agent.send_signal(signal.SIGTERM)
        agent.wait(DEADLINE_S)
    end = events[-1]
    assert (end["e"], end["reason"], end["trouble"]) == ("burn_end", "SIGTERM", None)
    assert all(worker["done"]["bfloat16"]["count"] > 0 for worker in end["workers"])
    assert [(event["gpu"], event["what"], event["elements"]) for event in events if event["e"] == "wrong"] == [(0, "int8", 1)]
    assert workers_left() == []
