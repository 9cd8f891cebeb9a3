"""Slurm that was built without JSON: its scontrol offers --json, and fails when it is used."""

from __future__ import annotations

import pytest

from unhang_node.base.process import ProcessResult
from unhang_node.change.drain import slurm

NODE = (
    "NodeName=gpu001 Arch=x86_64 CPUAlloc=0 State=IDLE+DRAIN ThreadsPerCore=2 Partitions=gpu"
    " Reason=bad DIMM [alice@2026-11-20T07:00:00]\n"
)


def scontrol(words):
    """A program starter whose `scontrol --json` ends with these words."""

    def run(argv, *_, **__):
        if argv[1] == "--help":
            return ProcessResult(tuple(argv), 0, "     --json         Produce JSON output\n")
        if argv[1] == "--json":
            return ProcessResult(tuple(argv), 1, "", words)
        return ProcessResult(tuple(argv), 0, NODE)

    return run


@pytest.mark.parametrize(
    "words",
    [
        "scontrol: fatal: serializer_required: could not find plugin for application/json",
        "scontrol: fatal: Unable to load serializer plugins: Plugin file not found",
    ],
)
def test_nodes_are_read_as_text_where_slurm_has_no_json(monkeypatch, words):
    monkeypatch.setattr(slurm, "run_process", scontrol(words))
    [node] = slurm.read_nodes("gpu001")
    assert (node.name, node.reason, node.by, "DRAIN" in node.states) == (
        "gpu001",
        "bad DIMM",
        "alice",
        True,
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("slurm_load_node: Access/permission denied", "Access/permission denied"),
        ("DNS lookup failed\nfatal: no configuration source", "^no slurm.conf for scontrol; next:"),
    ],
)
def test_another_failure_is_told_and_no_reason_to_read_text(monkeypatch, words, told):
    monkeypatch.setattr(slurm, "run_process", scontrol(words))
    with pytest.raises(ValueError, match=told):
        slurm.read_nodes("gpu001")
