# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""What the documentation of every module that changes a node says: check mode, diff mode, and the options that all of them have."""

from __future__ import annotations


class ModuleDocFragment:
    """Parts by name: `unhang`, `unhang.state_id`, `unhang.rootfs`."""

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

    ROOTFS = r"""
options:
  rootfs:
    description: Folder that stands for the node's V(/), such as a mounted image.
    type: path
    default: /
"""
