"""What every test starts from: none of the caller's own settings, for a test that passes only on its writer's machine proves nothing."""

from __future__ import annotations

import os

from hypothesis import settings

PREFIXES = ("ANSIBLE_", "UNHANG_", "NCCL_", "TORCH_", "CUDA_", "NVIDIA_")
NAMES = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONPATH", "PYTHONWARNINGS")

for name in list(os.environ):
    if name.startswith(PREFIXES) or name in NAMES:
        del os.environ[name]

# No test may depend on speed, and CI's examples are the same each time, so that a failure there can be had here.
settings.register_profile("unhang", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unhang")
