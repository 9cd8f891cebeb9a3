"""What every test starts from: none of the caller's own settings, for a test that passes only on its writer's machine proves nothing."""

from __future__ import annotations

import os
import signal
import sys
import tempfile

from hypothesis import settings

PREFIXES = ("ANSIBLE_", "UNHANG_", "NCCL_", "TORCH_", "CUDA_", "NVIDIA_")
NAMES = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONPATH", "PYTHONWARNINGS", "PYTHONDONTWRITEBYTECODE")

for name in list(os.environ):
    if name.startswith(PREFIXES) or name in NAMES:
        del os.environ[name]

# Otherwise every worker, and every program that a test starts, compiles the project again.
sys.dont_write_bytecode = False

# The history of runs that tests make is no part of the caller's own.
_STATE = tempfile.TemporaryDirectory(prefix="unhang-test-state-", ignore_cleanup_errors=True)
os.environ["XDG_STATE_HOME"] = _STATE.name

# No test may depend on speed, and CI's examples are the same each time, so that a failure there can be had here.
settings.register_profile("unhang", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unhang")

# A job in the background of a script, or under nohup, starts with signals ignored, and what tests start would inherit that: an ignored SIGINT ends nothing.
for _signal in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL)
