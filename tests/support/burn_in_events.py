"""Events of a burn-in's payload, as the judge gets them."""

from __future__ import annotations

SETTING = {"persistence_mode": 1, "compute_mode": 0, "power_limit_mw": 700000, "ecc": [1, 1], "used_bytes": 0, "processes": [], "remapped_rows": None}


def uuid(gpu):
    return f"GPU-{gpu:08d}"


def done(rate=7.0e14, wrong=0):
    return {"count": 4000, "seconds": 10.0, "work": rate * 10.0, "wrong": wrong, "slowest": rate * 0.99, "fastest": rate * 1.01}


def mean(value):
    return {"mean": value, "least": value, "most": value}


def reading(gpu, phase="bfloat16", mhz=1700.0, power=690.0, reasons=()):
    hot = {"temperature_c": mean(60.0), "memory_temperature_c": None, "pcie_generation": mean(5.0), "pcie_width": mean(16.0), "memory_mhz": mean(3201.0)}
    return {"uuid": uuid(gpu), "phase": phase, "samples": 40, "reasons": dict(reasons), "power_w": mean(power), "sm_mhz": mean(mhz), **hot}


def healthy(count=4, **end):
    """Events of a burn-in of this many GPUs without any fault; end: other fields of its last event."""
    events = [{"e": "burn_begin", "host": "gpu001", "device": "cuda", "duration_s": 300.0}]
    for gpu in range(count):
        events.append({"e": "device", "gpu": gpu, "uuid": uuid(gpu), "model": "NVIDIA H200", "torch": "2.11.0"})
        events += [{"e": "type", "gpu": gpu, "type": name, "status": "ready", "digest": "00ff"} for name in ("bfloat16", "int8")]
        events.append({"e": "ready", "gpu": gpu, "memory_bytes": 130 << 30, "types": ["bfloat16", "int8"], "collectives": count > 1})
    workers = [{"gpu": gpu, "uuid": uuid(gpu), "code": 0, "ready": True, "phase": "collective", "done": {"bfloat16": done()}} for gpu in range(count)]
    state = {"settings": [{"uuid": uuid(gpu), **SETTING} for gpu in range(count)], "problem": None}
    last = {"workers": workers, "readings": [reading(gpu) for gpu in range(count)], "power_w": {uuid(gpu): 688.0 for gpu in range(count)}}
    last |= {"counters": [], "before": state, "after": state, "reason": None, "trouble": None, "seconds": 340.0}
    return [*events, {"e": "burn_end", **last, **end}]
