"""The ids of lint's rules, each once."""

from __future__ import annotations

RULES = (
    "name-not-real", "wrong-case", "renamed", "torch-name", "unknown-name", "removed", "deprecated",
    "needs-newer", "wrong-value", "conf-syntax",
    "contradiction", "hides-fault", "timeout-hours", "debug-only", "undocumented",
    "interface-guessed", "prefix-match", "pod-shm", "pod-ipc-lock",
    "foreign-libnccl", "nccl-older-than-torch", "nccl-other-cuda", "no-such-package",
    "not-exported",
    "timeout-short", "collective-on-some-ranks", "sharded-save-on-some-ranks",
    "exit-before-collective", "exception-skips-collective", "uneven-shards",
    "no-set-device", "device-by-global-rank", "nodes-differ", "launcher-on-one-node",
    "same-node-rank", "gpus-fewer-than-processes", "one-gpu-per-task",
    "forward-on-some-ranks", "decided-by-each-rank", "master-is-loopback", "container-shm",
    "launcher-in-each-task", "standalone-of-several-nodes",
    "misspelt-directive", "device-ids-in-one", "more-gpus-than-ray-has", "not-parsed",
    "interpreter-not-first",
    "env-not-text", "container-on-bridge", "ray-without-block", "tasks-unlike-devices",
    "settings-unlike",
)  # fmt: skip
