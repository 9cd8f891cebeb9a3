"""IP addresses and routes from the kernel's tables in /proc/net and its netlink answers. Without
ipaddress, which takes 5 ms to import."""

from __future__ import annotations

# the module beneath socket, which takes 3 ms to import for its enumerations
import _socket as socket
import struct

from ...base.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FLAG_UP, FLAG_REJECT = 0x1, 0x200
NETLINK_HEAD = struct.Struct("=IHHII")  # length, type, flags, sequence, port
ADDRESS_HEAD = struct.Struct("=BBBBi")  # family, prefix length, flags, scope, interface number
NEW_ADDRESS, GET_ADDRESS, DONE, ERROR = 20, 22, 3, 2
REQUEST_DUMP = 0x301
IFA_ADDRESS, IFA_LOCAL = 1, 2


class Route(NamedTuple):
    """A route. network, mask: host integers; is_direct: without a gateway."""

    interface: str
    network: int
    mask: int
    is_direct: bool


def parse_routes(text: str) -> list[Route]:
    """The routes of /proc/net/route; routes that are down or rejecting left out."""
    routes = []
    for line in text.splitlines()[1:65537]:
        fields = line.split()
        if len(fields) < 8:
            continue
        try:
            network, gateway, flags, mask = (int(fields[at], 16) for at in (1, 2, 3, 7))
        except ValueError:
            continue
        if flags & FLAG_UP and not flags & FLAG_REJECT and max(network, gateway, mask) < 1 << 32:
            routes.append(
                Route(
                    interface=fields[0],
                    network=swap(network),
                    mask=swap(mask),
                    is_direct=gateway == 0,
                )
            )
    return routes


def swap(number: int) -> int:
    """/proc/net/route prints addresses in the byte order of the network as if it were the host's
    (little endian)."""
    return int.from_bytes(number.to_bytes(4, "big"), "little")


def parse_default_interfaces(text: str, text6: str = "") -> list[str]:
    """Names of the interfaces that hold a default route, by /proc/net/route and ipv6_route."""
    names = [
        route.interface for route in parse_routes(text) if route.network == 0 and route.mask == 0
    ]
    for line in text6.splitlines()[:65536]:
        fields = line.split()
        if len(fields) == 10 and fields[0] == "0" * 32 and fields[1] == "00" and fields[9] != "lo":
            names.append(fields[9])
    return sorted(set(names))


def parse_local_addresses(text: str) -> set[int]:
    """{address as host integer} of the local addresses in /proc/net/fib_trie: the lines "|--
    a.b.c.d" followed by "/32 host LOCAL"."""
    found, last = set(), None
    for line in text.splitlines()[:262144]:
        fields = line.split()
        if len(fields) == 2 and fields[0] == "|--":
            last = fields[1]
        elif fields[:3] == ["/32", "host", "LOCAL"] and last:
            number = ipv4_number(last)
            if number is not None:
                found.add(number)
    return found


def ipv4_number(text: str) -> int | None:
    """The host integer of a dotted address, or None."""
    try:
        return struct.unpack(">I", socket.inet_aton(text))[0] if text.count(".") == 3 else None
    except OSError:
        return None


def ipv4_text(number: int) -> str:
    """The dotted text of a host integer."""
    return socket.inet_ntoa(struct.pack(">I", number))


def match_ipv4(locals_: set[int], routes: list[Route]) -> tuple[dict[str, list[str]], list[str]]:
    """({interface: ["10.0.0.1/24"]}, [address that two interfaces could have]): which interface
    each local address belongs to.

    An address belongs to the interface whose direct route, the most specific one, covers it. Two
    interfaces in one network cannot be distinguished.
    """
    found: dict[str, list[str]] = {}
    unclear = []
    for number in sorted(locals_):
        if number >> 24 == 127:
            found.setdefault("lo", []).append(ipv4_text(number) + "/8")
            continue
        covering = [
            (mask, name)
            for name, network, mask, direct in routes
            if direct and mask and number & mask == network
        ]
        best = max((mask for mask, _name in covering), default=0)
        names = {name for mask, name in covering if mask == best}
        if len(names) == 1:
            found.setdefault(names.pop(), []).append(f"{ipv4_text(number)}/{bin(best).count('1')}")
        else:
            unclear.append(ipv4_text(number))
    return found, unclear


def shared_subnets(interfaces: list[dict[str, Any]]) -> list[str]:
    """["10.0.0.0/24"] of the IPv4 subnets in which several ports that are up have an address.
    interfaces: rows of the section network."""
    members: dict[tuple[int, int], set[str]] = {}
    for row in interfaces:
        if row["kind"] not in ("physical", "infiniband") or row["state"] != "up":
            continue
        for address in row["addresses"] or []:
            number, _, bits = address.partition("/")
            value = ipv4_number(number)
            if value is not None and bits.isdigit() and 0 < int(bits) < 31:
                members.setdefault(
                    (value >> (32 - int(bits)) << (32 - int(bits)), int(bits)), set()
                ).add(row["name"])
    return [
        f"{ipv4_text(network)}/{bits}"
        for (network, bits), names in sorted(members.items())
        if len(names) > 1
    ]


def parse_if_inet6(text: str) -> dict[str, list[str]]:
    """{interface: ["fe80::1/64"]} of /proc/net/if_inet6."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines()[:65536]:
        fields = line.split()
        if len(fields) == 6 and len(fields[0]) == 32:
            try:
                address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))
                found.setdefault(fields[5], []).append(f"{address}/{int(fields[2], 16)}")
            except ValueError:
                continue
    return found


def is_routable(address: str) -> bool:
    """True for an address that another node could answer: neither loopback, nor link-local, nor
    unspecified."""
    host = address.partition("/")[0].lower()
    if ":" in host:
        return not host.startswith(("fe8", "fe9", "fea", "feb")) and host not in ("::1", "::")
    return not host.startswith(("127.", "169.254.", "0."))


def netlink_request() -> bytes:
    """The message that asks for all addresses of all families: rtnetlink(7), RTM_GETADDR."""
    return NETLINK_HEAD.pack(
        NETLINK_HEAD.size + ADDRESS_HEAD.size, GET_ADDRESS, REQUEST_DUMP, 1, 0
    ) + ADDRESS_HEAD.pack(0, 0, 0, 0, 0)


def parse_netlink(data: bytes) -> tuple[list[tuple[int, str]], bool]:
    """([(interface number, "10.0.0.1/24")], is_done) of one netlink datagram. Raises OSError when
    it carries the kernel's error."""
    found: list[tuple[int, str]] = []
    offset = 0
    while offset + NETLINK_HEAD.size <= len(data):
        length, kind = NETLINK_HEAD.unpack_from(data, offset)[:2]
        if length < NETLINK_HEAD.size:
            break
        if kind == DONE:
            return found, True
        if kind == ERROR:
            raise OSError(
                -struct.unpack_from("=i", data, offset + NETLINK_HEAD.size)[0],
                "netlink refused RTM_GETADDR",
            )
        if kind == NEW_ADDRESS:
            row = parse_address_message(data[offset + NETLINK_HEAD.size : offset + length])
            if row:
                found.append(row)
        offset += length + 3 & ~3
    return found, False


def parse_address_message(body: bytes) -> tuple[int, str] | None:
    """(interface number, "address/prefix") of one RTM_NEWADDR, or None."""
    if len(body) < ADDRESS_HEAD.size:
        return None
    family, prefix, _flags, _scope, index = ADDRESS_HEAD.unpack_from(body)
    size = {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family)
    attributes, offset = {}, ADDRESS_HEAD.size
    while offset + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, offset)
        if length < 4:
            break
        attributes[kind] = body[offset + 4 : offset + length]
        offset += length + 3 & ~3
    # On a point-to-point link IFA_ADDRESS is the other end's; the own one is IFA_LOCAL.
    raw = attributes.get(IFA_LOCAL) or attributes.get(IFA_ADDRESS)
    if size is None or raw is None or len(raw) != size:
        return None
    return index, f"{socket.inet_ntop(family, raw)}/{prefix}"
