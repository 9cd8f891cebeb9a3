"""Readings of many minutes in little memory: sums and extremes by GPU and by the GPU's work at that time."""

from __future__ import annotations

from typing import Any

READINGS = ("power_w", "sm_mhz", "memory_mhz", "temperature_c", "memory_temperature_c", "pcie_generation", "pcie_width")


class Tally:
    """rows: {(GPU's UUID, phase): {"samples", "power_w": [sum, least, most, count], ..., "reasons": {reason: samples}}}."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        self.energy: dict[str, list[float]] = {}

    def add(self, uuid: str, phase: str, reading: dict[str, Any], at: float) -> None:
        """Adds one reading of one GPU. at: seconds."""
        row = self.rows.setdefault((uuid, phase), {"samples": 0, "reasons": {}})
        row["samples"] += 1
        for name in READINGS:
            value = reading.get(name)
            if value is not None:
                total, least, most, count = row.get(name) or (0.0, value, value, 0)
                row[name] = (total + value, min(least, value), max(most, value), count + 1)
        for reason in reading.get("reasons") or ():
            row["reasons"][reason] = row["reasons"].get(reason, 0) + 1
        if reading.get("energy_j") is not None and phase not in ("before", "after", "start"):
            first = self.energy.setdefault(uuid, [at, reading["energy_j"], at, reading["energy_j"]])
            first[2:] = [at, reading["energy_j"]]

    def report(self) -> list[dict[str, Any]]:
        """[{uuid, phase, samples, power_w: {mean, least, most}, ..., reasons}]."""
        rows = []
        for (uuid, phase), row in sorted(self.rows.items()):
            found: dict[str, Any] = {"uuid": uuid, "phase": phase, "samples": row["samples"], "reasons": row["reasons"]}
            for name in READINGS:
                total, least, most, count = row.get(name) or (0.0, None, None, 0)
                found[name] = {"mean": round(total / count, 2), "least": least, "most": most} if count else None
            rows.append(found)
        return rows

    def mean_power(self) -> dict[str, float]:
        """{UUID: W} under load, from the GPU's own energy counter."""
        return {uuid: round((last - first) / (end - begin), 2) for uuid, (begin, first, end, last) in self.energy.items() if end > begin}
