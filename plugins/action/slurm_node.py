# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of slurm_node, as that of drain_hook."""

from __future__ import annotations

from typing import Any

from ansible.plugins.loader import action_loader

_Action: Any = action_loader.get("drain_hook", class_only=True)


class ActionModule(_Action):
    """One call of the module."""
