# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The common documentation of every module that changes a node: check mode, diff mode, and the
shared options."""

from __future__ import annotations


class ModuleDocFragment:
    """`unhang` and its parts: reads, state_id, fencing, rootfs."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Reports what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows what changes before and after.
    support: full
author:
  - the unhang authors
"""

    READS = r"""
attributes:
  check_mode:
    description: Changes nothing either way.
    support: full
author:
  - the unhang authors
"""

    STATE_ID = r"""
options:
  state_id:
    description: Saved state (M(saved_state)) that keeps the earlier values for a rollback with M(state_restore). With an empty id nothing is saved.
    type: str
    default: ""
"""  # noqa: E501

    FENCING = r"""
options:
  fencing:
    description:
      - Number of the run's lock on the node (M(node_lock)). If the lock is gone or has another number, another run has the node, and the module stops before
        it changes anything. Not checked with 0.
    type: int
    default: 0
"""  # noqa: E501

    ROOTFS = r"""
options:
  rootfs:
    description: Folder to use as the node's V(/), such as a mounted image.
    type: path
    default: /
"""
