"""Elastic Fabric Adapter: version and plugin, from its installer's files. Part of section `network`."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..root import Root
    from ..section import Unread

LISTING = "/opt/amazon/efa_installed_packages"
INSTALLER = re.compile(r"EFA installer version: {0,8}v?(\d{1,4}(?:\.\d{1,4}){1,3})")
PLUGIN = re.compile(r"(?:libnccl-ofi|aws-ofi-nccl)[_-]v?(\d{1,4}(?:\.\d{1,4}){1,3})")


def read_efa(root: Root, unread: Unread) -> dict[str, str | None] | None:
    """{installer, plugin} of the installer's own listing; null without it. Raises OSError."""
    if not root.exists(LISTING):
        unread.add("efa", "absent", "no " + LISTING)
        return None
    found = parse_efa_listing(root.text(LISTING, 65536))
    for field, value in found.items():
        if value is None:
            unread.add("efa." + field, "absent", f"{LISTING} does not name it")
    return found


def parse_efa_listing(text: str) -> dict[str, str | None]:
    """{installer, plugin}: versions of the installer and of aws-ofi-nccl, None for what the listing does not name."""
    installer, plugin = INSTALLER.search(text), PLUGIN.search(text)
    return {"installer": installer.group(1) if installer else None, "plugin": plugin.group(1) if plugin else None}
