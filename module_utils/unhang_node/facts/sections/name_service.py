"""How the node resolves names, and firewalls that may block its peers."""

from __future__ import annotations

import re

from ...base.parse.values import clean, parse_assignments
from .host_state import service_folders
from .reading import line_if_there, there
from .services import LINK_FOLDERS, SUFFIX, linked_units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root

WORDS = 16
# policy drop of an input hook; and of iptables, or a last rule for everything
NFT_DROPS = re.compile(r"^[^#\n]*\bhook\s+input\s+priority\b[^{}#]{0,80}\bpolicy\s+drop\b", re.M)
IPTABLES_DROPS = re.compile(r"^(?::INPUT DROP\b|-A INPUT -j (?:DROP|REJECT)\b)", re.M)
RULES_AT_BOOT = (  # service, its file, what in it drops
    ("nftables", "/etc/nftables.conf", NFT_DROPS),
    ("nftables", "/etc/sysconfig/nftables.conf", NFT_DROPS),
    ("netfilter-persistent", "/etc/iptables/rules.v4", IPTABLES_DROPS),
    ("iptables", "/etc/sysconfig/iptables", IPTABLES_DROPS),
)


def read_name_service(root: Root) -> dict[str, Any]:
    """{hosts, servers}: the order of /etc/nsswitch.conf for hosts and the name servers of
    /etc/resolv.conf; [] for a missing file. Raises OSError."""
    return {
        "hosts": parse_hosts_order(text_or_empty(root, "/etc/nsswitch.conf")),
        "servers": parse_servers(text_or_empty(root, "/etc/resolv.conf")),
    }


def text_or_empty(root: Root, path: str) -> str:
    """The file's text, "" if it does not exist. Raises other OSErrors: a file that cannot be read
    is not an empty file."""
    try:
        return root.text(path, 65536)
    except FileNotFoundError:
        return ""


def parse_hosts_order(text: str) -> list[str]:
    """["files", "dns"] of the line "hosts:", without the actions in brackets."""
    for line in text.splitlines():
        name, colon, rest = line.partition("#")[0].partition(":")
        if colon and name.strip() == "hosts":
            return [clean(word, 64) for word in rest.split() if "=" not in word][:WORDS]
    return []


def parse_servers(text: str) -> list[str]:
    """Addresses of the lines "nameserver"."""
    rows = [line.split() for line in text.splitlines()]
    return [clean(row[1], 64) for row in rows if len(row) > 1 and row[0] == "nameserver"][:WORDS]


def read_firewalls(root: Root) -> list[str]:
    """Active firewalls, such as ["firewalld", "ufw"], and by their names the services that load
    rules at boot which drop what comes in. What a kernel has loaded is not asked: the answer needs
    netlink, which can load a module. Raises OSError where systemd's services cannot be seen."""
    folders = service_folders(root)
    found = (
        ["firewalld"]
        if any(there(root, folder + "/firewalld.service") for folder in folders)
        else []
    )
    setting = parse_assignments(text_or_empty(root, "/etc/ufw/ufw.conf")).get("ENABLED", "")
    found += ["ufw"] if setting.lower() == "yes" else []
    starts = {name for folder in LINK_FOLDERS for name in linked_units(root, folder)}
    return found + [
        name
        for name, file, drops in RULES_AT_BOOT
        if name + SUFFIX in starts and drops.search(text_or_empty(root, file))
    ]


def read_tuned_profile(root: Root) -> str:
    """The profile that tuned applies, "" without one."""
    return (line_if_there(root, "/etc/tuned/active_profile") or "")[:128]
