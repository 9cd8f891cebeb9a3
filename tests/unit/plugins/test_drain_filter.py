"""What kubectl prints is checked before the role drain uses it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

PLUGIN = Path(__file__).resolve().parents[3] / "plugins" / "filter" / "unhang_drain.py"
STRANGE = [
    {"kind": "Status", "code": 200},
    {"kind": "List", "items": None},
    {"kind": "List", "items": [7]},
    {"kind": "List", "items": [{"metadata": []}]},
    {"kind": "List", "items": [{"metadata": {}}]},
    [],
    7,
]


@pytest.fixture(scope="module")
def filters():
    spec = importlib.util.spec_from_file_location("unhang_drain_filters", PLUGIN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FilterModule().filters()


@pytest.mark.parametrize("answer", STRANGE, ids=str)
def test_an_answer_of_another_form_is_one_kind_of_error(filters, answer):
    text = json.dumps(answer)
    for name in ("jobs", "states"):
        with pytest.raises(AnsibleFilterError, match="kubectl did not print a list: "):
            filters[f"unhang_kubernetes_{name}"](text)


@pytest.mark.parametrize("answer", [*map(json.dumps, STRANGE), "", "<html>"])
def test_nodes_that_wait_ask_again_as_where_kubectl_failed(filters, answer):
    right = json.dumps({"kind": "List", "items": []})
    for stdout in ((answer, right), (right, answer)):
        found = filters["unhang_kubernetes_all_jobs"]([{"rc": 0, "stdout": one} for one in stdout])
        assert (found["nodes"], found["jobs"]) == ([], {}) and "kubectl did not print" in found[
            "why"
        ]
