"""Versions that one file installs fit each other, or the line says which does not."""

from __future__ import annotations

import pytest

from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text


@pytest.mark.parametrize(("text", "rules"), [
    ("FROM ubuntu:22.04\nRUN pip install torch==2.3.0 nvidia-nccl-cu12==2.18.1\n",
    ["nccl-older-than-torch"]),
    ("FROM ubuntu:22.04\nRUN pip install torch==2.3.0 nvidia-nccl-cu11==2.21.5\n",
    ["nccl-other-cuda"]),
    ("FROM ubuntu:22.04\nRUN pip install torch==2.3.0 nvidia-nccl-cu12==2.21.5\n", []),
    ("FROM ubuntu:22.04\nRUN pip install torch==2.3.0+cu118 nvidia-nccl-cu11==2.20.5\n", []),
    ("FROM ubuntu:22.04\nRUN pip install --index-url https://download.pytorch.org/whl/cu118 torch==2.3.0\nRUN pip install nvidia-nccl-cu11==2.20.5\n", []),
    ("FROM ubuntu:22.04\nRUN pip install torch==1.9.0 nvidia-nccl-cu12==2.18.1\n", []),
    ("FROM ubuntu:22.04\nRUN pip install torch==2.3.0 nvidia-nccl-cu12==2.18.1  # unhang: ignore\n",
    []),
])  # fmt: skip
def test_nccl_wheel_is_compared_with_the_torch_of_the_same_file(text, rules):
    assert [
        one.rule for one in lint_text(text, "docker", Context()) if one.rule.startswith("nccl-o")
    ] == rules


@pytest.mark.parametrize(("torch", "rules"), [
    ("2.1.2", ["torch-name"]),
    ("2.1.2+cu121", ["torch-name"]),
    ("2.2.0a0+81ea7a4", ["renamed"]),
    ("2.2.0+cu121", ["renamed"]),
    ("2.10.0", ["renamed"]),
])  # fmt: skip
def test_a_build_of_torch_is_of_its_release(torch, rules):
    """Renamed in 2.2.0: NCCL_ASYNC_ERROR_HANDLING is TORCH_NCCL_ASYNC_ERROR_HANDLING since."""
    found = lint_text("export NCCL_ASYNC_ERROR_HANDLING=1\n", "shell", Context(torch=torch))
    assert [one.rule for one in found] == rules
