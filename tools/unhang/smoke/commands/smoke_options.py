"""What `unhang smoke` was asked to test, and how."""

from __future__ import annotations

from unhang.smoke.group import SessionOptions


class SmokeOptions(SessionOptions, frozen=True, kw_only=True):
    """env, rank_env, drill, switch: as they were typed."""

    as_hosts: int | None
    host: list[str]
    launcher: str
    srun: list[str]
    user: str | None
    ssh_config: str | None
    switch: list[str]
    inventory: str | None
    backend: str
    phases: str | None
    python: str | None
    container_image: str | None
    container_runtime: str | None
    container_option: list[str]
    step_timeout: float | None
    timeout: float
    max_size: str | None
    sizes: str | None
    env: list[str]
    rank_env: list[str]
    drill: list[str]
    policy: str | None
    policy_bandwidth: str | None
