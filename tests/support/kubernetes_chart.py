"""deploy/kubernetes rendered by Helm's own library, in a process of its own: its Go runtime and this
process's forks do not go together."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
LEAST = {"image": {"repository": "registry.invalid/unhang-node", "digest": DIGEST}}
GATE = {
    "gate": {
        "enabled": True,
        "detector": {"repository": "registry.invalid/node-problem-detector", "digest": DIGEST},
    }
}
ASKS = """
import json, sys, helm_python as helm
chart, values = sys.argv[1], json.loads(sys.argv[2])
try:
    with helm.Chart.load(chart) as one:
        files = one.render(values, name="unhang", namespace="unhang")
except helm.HelmError as problem:
    print(json.dumps({"problem": str(problem)}))
else:
    print(json.dumps({"files": files, "lint": helm.lint(chart, values, strict=True)}))
"""


@functools.cache
def _helm_on(values: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", ASKS, str(CHART), values], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def helm_on(values: dict[str, Any]) -> dict[str, Any]:
    """{files, lint}, or {problem}: what Helm makes of the chart with these values."""
    return _helm_on(json.dumps(values, sort_keys=True))


def rendered(**values: Any) -> list[dict[str, Any]]:
    """The objects of the chart, with the least values and these."""
    answer = helm_on({**LEAST, **values})
    assert "problem" not in answer, answer["problem"]
    texts = [text for name, text in answer["files"].items() if name.endswith(".yaml")]
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The object of this kind and name."""
    (found,) = [row for row in objects if (row["kind"], row["metadata"]["name"]) == (kind, name)]
    return found


def pod(objects: list[dict[str, Any]], name: str = "unhang-collector") -> dict[str, Any]:
    return one(objects, "DaemonSet", name)["spec"]["template"]["spec"]
