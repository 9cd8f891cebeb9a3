"""The key with which DKMS signs the modules that it builds, and whether it is enrolled in the
firmware. Part of section `node`."""

from __future__ import annotations

from .reading import first_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

# DKMS' own key, Ubuntu's shared one, and usual places of a site's own key; all in DER, the format
# of the firmware's list.
KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub", "/etc/dkms/mok.pub")
# shim writes the enrolled keys into this variable at each boot.
# https://github.com/rhboot/shim/blob/main/README.tpm
ENROLLED = (
    "/sys/firmware/efi/mok-variables/MokListRT",
    "/sys/firmware/efi/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23",
)
LIMIT_BYTES = 1 << 20


def read_module_key(root: Root, unread: Unread) -> dict[str, Any]:
    """{path, enrolled}: path None without a key; enrolled None when the firmware's list could not
    be read. Raises OSError."""
    path = first_there(root, KEYS)
    if path is None:
        return {"path": None, "enrolled": False}
    key = root.data(path, LIMIT_BYTES)
    listed = first_there(root, ENROLLED)
    if listed is None:
        unread.add("module_key.enrolled", "absent", "the firmware shows no list of enrolled keys")
        return {"path": path, "enrolled": None}
    content = unread.attempt("module_key.enrolled", root.data, listed, LIMIT_BYTES)
    return {"path": path, "enrolled": None if content is None else bool(key) and key in content}
