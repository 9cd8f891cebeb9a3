"""The environment of every test: without the caller's own settings, because a test that passes only
on its author's machine proves nothing."""

from __future__ import annotations

import os
import signal
import sys
import tempfile

from hypothesis import settings

PREFIXES = ("ANSIBLE_", "UNHANG_", "NCCL_", "TORCH_", "CUDA_", "NVIDIA_")
NAMES = (
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "PYTHONDONTWRITEBYTECODE",
)

for name in list(os.environ):
    if name.startswith(PREFIXES) or name in NAMES:
        del os.environ[name]

# Otherwise every worker, and every program that a test starts, compiles the project again.
sys.dont_write_bytecode = False

# The run history of the tests must not go into the caller's own.
_STATE = tempfile.TemporaryDirectory(prefix="unhang-test-state-", ignore_cleanup_errors=True)
os.environ["XDG_STATE_HOME"] = _STATE.name

# No test may depend on speed, and CI's examples are the same each time, so that a failure there can
# be repeated here.
settings.register_profile("unhang", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unhang")

# A job in the background of a script, or under nohup, starts with signals ignored. Tests' child
# processes would inherit that, and SIGINT would not end them.
for _signal in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(
            _signal, signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL
        )
