# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""What the documentation of every module that changes a node says: check mode, diff mode, and the options that all of them have."""

from __future__ import annotations


class ModuleDocFragment:
    """Parts by name: `unhang`, `unhang.state_id`, `unhang.fencing`, `unhang.rootfs`."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows what changes before and after.
    support: full
author:
  - the unhang authors
"""

    STATE_ID = r"""
options:
  state_id:
    description: A saved state (M(saved_state)) that keeps what is changed as it was before, to be undone with M(state_restore). None with an empty one.
    type: str
    default: ""
"""

    FENCING = r"""
options:
  fencing:
    description:
      - Number that the run was given with the node's lock (M(node_lock)). A module that finds the lock gone or with another number stops before it changes
        anything, for another run has taken the node. Not checked with 0.
    type: int
    default: 0
"""

    ROOTFS = r"""
options:
  rootfs:
    description: Folder that stands for the node's V(/), such as a mounted image.
    type: path
    default: /
"""
