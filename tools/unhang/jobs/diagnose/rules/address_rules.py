"""Rules over addresses: in launch commands, of the rendezvous, and of failed connections."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING = WEIGHTS["strong"], WEIGHTS["supporting"]
_HERE = ("127.", "0.")


def private_network(address: str) -> str:
    """The first two numbers of a private address, three of 192.168; "" for any other."""
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdigit() for part in parts):
        return ""
    if parts[:2] == ["192", "168"]:
        return ".".join(parts[:3])
    return ".".join(parts[:2]) if parts[0] == "10" or (parts[0] == "172" and 16 <= int(parts[1]) < 32) else ""


def _failed(facts: Facts) -> list[Event]:
    """Failed connections to an address of another machine."""
    return [event for event in facts.of("failed_address") if not (event.quoted or str(event.fields["value"]).startswith(_HERE))]


def hosts_have_one_address(facts: Facts) -> Iterator[Evidence]:
    """Several hosts give the same address as their own, and connections fail: each has a local network with this address, such as a bridge."""
    by_address: dict[str, dict[str, Event]] = {}
    for event in facts.of("bootstrap"):
        if event.prefix.host:
            by_address.setdefault(event.fields["address"] or "", {}).setdefault(event.prefix.host, event)
    failed = _failed(facts) or [event for event in facts.events if event.signature.fact in ("connect_retried", "socket_failed")]
    for address, by_host in by_address.items():
        if len(by_host) > 1 and failed:
            events = (*list(by_host.values())[:2], failed[0])
            yield Evidence(
                "wrong_interface", STRONG + 1, f"{' and '.join(sorted(by_host)[:2])} both give {address} as their own address", events, "one-address-of-hosts"
            )
            yield Evidence("firewall_ports", -SUPPORTING, "no other host has this address", events[:1], "one-address-of-hosts")
            return


def failed_outside_the_launch(facts: Facts) -> Iterator[Evidence]:
    """A connection fails to an address in a private network, and the launch command has only addresses of another network."""
    chosen = {event.fields["value"] for event in facts.of("chosen_address")}
    named = {address: event for event in facts.of("launch_address") for address in _addresses(event) if address not in chosen}
    networks = {private_network(address) for address in named} - {""}
    for event in _failed(facts):
        address = str(event.fields["value"])
        network = private_network(address)
        if network and networks and network not in networks and address not in named:
            first = next(iter(named.values()))
            why = f"a connection to {address} fails, and the launch names addresses of {' and '.join(sorted(networks)[:2])}"
            yield Evidence("wrong_interface", STRONG + 1, why, (event, first), "failed-outside-launch")
            yield Evidence("firewall_ports", -SUPPORTING, why, (event,), "failed-outside-launch")
            return


def _addresses(event: Event) -> list[str]:
    return [str(event.fields["value"]), *((event.fields["more"] or "").replace(",", " ").split())]


def own_name_leads_to_loopback(facts: Facts) -> Iterator[Evidence]:
    """A connection to 127.0.1.1 fails, and a host's /etc/hosts in the log shows why that address was used."""
    named, failed = facts.of("own_name_on_loopback"), [event for event in facts.of("connect_own_name") if not event.quoted]
    if named and failed:
        why = f"{named[0].fields['name']} resolves to loopback on its own host, which gave that address to the others"
        yield Evidence("dns_hostname", WEIGHTS["decisive"] + SUPPORTING, why, (named[0], failed[0]), "own-name-and-refused")
        yield Evidence("wrong_interface", -STRONG, why, (named[0],), "own-name-and-refused")


def name_unknown_and_no_answer(facts: Facts) -> Iterator[Evidence]:
    """A host whose name does not resolve does not answer either: that is no evidence of a firewall."""
    unknown = [event for event in facts.events if event.signature.id == "torch-address-unknown" and not event.quoted]
    silent = [event for event in facts.events if event.signature.id == "torch-client-socket-timeout" and not event.quoted]
    for host in dict.fromkeys(str(event.fields["host"]) for event in silent):
        named = [event for event in unknown if f"({host}, " in event.text]
        if named:
            yield Evidence("firewall_ports", -WEIGHTS["hinting"], f"the name {host} does not resolve", (named[0],), "name-unknown-and-no-answer")
            return


def exclusion_lets_loopback_in(facts: Facts) -> Iterator[Evidence]:
    """A list of interfaces to leave out replaces NCCL's own, which has lo; if the list lacks lo, NCCL may choose it before the others."""
    chosen = [event for event in facts.of("bootstrap") if event.fields["interface"] == "lo" and not event.quoted]
    for event in facts.of("setting"):
        name, value = event.fields["name"], (event.fields["value"] or "").strip("'\"")
        if chosen and name == "NCCL_SOCKET_IFNAME" and value.startswith("^") and "lo" not in value[1:].lstrip("=").split(","):
            why = f"NCCL_SOCKET_IFNAME={value} does not leave out lo, and NCCL chose lo"
            yield Evidence("wrong_interface", STRONG, why, (event, chosen[0]), "exclusion-without-lo")
            return


def name_was_found_later(facts: Facts) -> Iterator[Evidence]:
    """Names of hosts did not resolve at first, and ssh reached each of these hosts later: a launcher that repeats its attempts until the hosts are there."""
    unknown = [event for event in facts.events if event.signature.id == "master-name-unknown" and not event.quoted]
    reached = facts.of("ssh_reached")
    found = [(event, later) for event in unknown for later in reached if _is_the_host(event, later)]
    if unknown and {event.line for event, _ in found} == {event.line for event in unknown}:
        why = f"ssh reached {found[-1][1].fields['host']} later"
        yield Evidence("dns_hostname", -STRONG, why, found[-1], "name-found-later")
        yield Evidence("wrong_interface", -SUPPORTING, why, found[-1], "name-found-later")


def _is_the_host(unknown: Event, later: Event) -> bool:
    return later.file == unknown.file and later.line > unknown.line and str(unknown.fields["host"] or "").rstrip(":") == later.fields["host"]
