"""Admission records (unhang/admission/1): made for a node that passed, later compared with the
node. Values in, values out."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.schemas.configuration import config_hash, section_hashes
from unhang.core.text import counted
from unhang_node.base.parse.values import as_map, as_maps
from unhang_node.facts.parse.admission import SCHEMA

GPU_FIELDS = ("index", "uuid", "serial", "pci_address", "model", "vbios", "inforom")
FIRMWARE = ("vbios", "inforom")
# Sections whose facts are compared one by one below; a difference in another of their facts still
# changes their hash.
VERSIONS = {"driver": "driver", "kernel": "kernel", "bios": "BIOS", "nccl": "NCCL"}


@dataclass(frozen=True)
class Difference:
    """A property of the node that is not as admitted. what: for people, such as "driver"; admitted
    and found: as they were read."""

    what: str
    admitted: str
    found: str


def admission_record(
    host: str,
    facts: Mapping[str, Any],
    gate: Mapping[str, Any],
    admitted_at: datetime.datetime,
    days: int,
) -> dict[str, Any]:
    """The record of one node. facts: unhang/node-facts/1; gate: unhang/gate/1; days: how long it is
    valid."""
    subject = subject_of(facts)
    smoke = gate.get("smoke") or {}
    return {
        "schema": SCHEMA,
        "host": host,
        "run": gate["run"],
        "admitted_at": admitted_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "expires": (admitted_at + datetime.timedelta(days=days)).strftime("%Y-%m-%d"),
        **subject,
        "config_hash": config_hash(facts),
        "sections": section_hashes(facts),
        "results": {
            "alone": (smoke.get("alone") or {}).get(host),
            "together": _together(smoke, host),
        },
        "limits": {
            "severities": list(gate["severities"]),
            "reference": gate["reference"],
            "as_root": (facts.get("collector") or {}).get("as_root"),
        },
    }


def admission_file(line: str, signature: str, key: str) -> str:
    """The files on controller and node: the record, its signature and the public key."""
    return "\n".join(part.strip("\n") for part in (line, signature, key) if part) + "\n"


def subject_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """{machine_id, gpus, nics, versions} of the facts; None for values that were not read."""
    sections = facts.get("sections") or {}
    node, driver, kernel = (as_map(sections.get(name)) for name in ("node", "driver", "kernel"))
    devices = as_maps(as_map(sections.get("gpus")).get("devices"))
    rdma = as_maps(as_map(sections.get("network")).get("rdma"))
    libraries = as_maps(as_map(sections.get("nccl")).get("libraries"))
    return {
        "machine_id": node.get("machine_id") or None,
        "gpus": [{name: row.get(name) for name in GPU_FIELDS} for row in devices],
        "nics": [{name: row.get(name) for name in ("name", "firmware")} for row in rdma],
        "versions": {
            "driver": as_map(driver.get("loaded")).get("version"),
            "kernel": kernel.get("release"),
            "bios": as_map(node.get("dmi")).get("bios_version"),
            "nccl": next(
                (row.get("version") for row in libraries if row.get("is_loader_default")), None
            ),
        },
    }


def is_of_another_node(record: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether the machine ids differ; without them, whether no GPU is the same."""
    subject = subject_of(facts)
    if record["machine_id"] and subject["machine_id"]:
        return bool(record["machine_id"] != subject["machine_id"])
    admitted, found = _uuids(record["gpus"]), _uuids(subject["gpus"])
    return bool(admitted and found and not set(admitted) & set(found))


def unread_identity(record: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """What names the machine and is not in the facts: another one could have given them."""
    subject = subject_of(facts)
    admitted = _uuids(record["gpus"])
    missing = ["machine id"] if record["machine_id"] and not subject["machine_id"] else []
    missing += ["GPUs"] if admitted and not _uuids(subject["gpus"]) else []
    return missing + (["an identity"] if not record["machine_id"] and not admitted else [])


def unread_facts(record: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """What else the record attests and the facts do not have: it may have changed."""
    versions, hashes = subject_of(facts)["versions"], section_hashes(facts)
    missing = [
        what
        for name, what in VERSIONS.items()
        if record["versions"].get(name) and not versions.get(name)
    ]
    return missing + [
        f"section {name}" for name in sorted(record["sections"]) if name not in hashes
    ]


def differences(record: Mapping[str, Any], facts: Mapping[str, Any]) -> list[Difference]:
    """The properties of the node that are no longer as admitted. A value that was not read, then or
    now, is no difference."""
    subject = subject_of(facts)
    named = [
        *_versions(record["versions"], subject["versions"]),
        *_gpus(record["gpus"], subject["gpus"]),
        *_nics(record["nics"], subject["nics"]),
    ]
    hashes = section_hashes(facts)
    changed = [
        name
        for name, value in sorted(record["sections"].items())
        if name in hashes and hashes[name] != value
    ]
    if changed and not named:
        return [
            Difference(
                "configuration",
                record["config_hash"][:19],
                f"other facts in {', '.join(changed)}, unless this unhang reads more facts there"
                " than the one that admitted the node",
            )
        ]
    return named


def _versions(admitted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    for name, argv in VERSIONS.items():
        if admitted.get(name) and found.get(name) and admitted[name] != found[name]:
            yield Difference(argv, str(admitted[name]), str(found[name]))


def _gpus(
    admitted: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> Iterator[Difference]:
    before, now = _uuids(admitted), _uuids(found)
    if not before or not now:
        return
    gone, new = (
        [uuid for uuid in before if uuid not in now],
        [uuid for uuid in now if uuid not in before],
    )
    if gone or new:
        lost, found_now = (
            ", ".join(_gpu_words(rows[uuid]) for uuid in uuids)
            for uuids, rows in ((gone, before), (new, now))
        )
        yield Difference(
            "GPUs", lost or counted(len(before), "GPU"), found_now or counted(len(now), "GPU")
        )
    for uuid in before.keys() & now.keys():
        for name in FIRMWARE:
            if (
                before[uuid].get(name)
                and now[uuid].get(name)
                and before[uuid][name] != now[uuid][name]
            ):
                yield Difference(f"{name} of {uuid}", str(before[uuid][name]), str(now[uuid][name]))


def _nics(
    admitted: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> Iterator[Difference]:
    before, now = (
        {str(row["name"]): row.get("firmware") for row in rows if row.get("name")}
        for rows in (admitted, found)
    )
    if before.keys() != now.keys():
        yield Difference(
            "RDMA devices", ", ".join(sorted(before)) or "none", ", ".join(sorted(now)) or "none"
        )
    for name in sorted(before.keys() & now.keys()):
        if before[name] and now[name] and before[name] != now[name]:
            yield Difference(f"firmware of {name}", str(before[name]), str(now[name]))


def _together(smoke: Mapping[str, Any], host: str) -> Any:
    together = smoke.get("together")
    return together if together and host in (together.get("hosts") or []) else None


def _gpu_words(row: Mapping[str, Any]) -> str:
    """A GPU as a person finds it: its UUID, the number on its board and its slot."""
    beside = [
        f"{argv} {row[name]}"
        for name, argv in (("serial", "serial"), ("pci_address", "PCI"))
        if row.get(name)
    ]
    return f"{row['uuid']} ({', '.join(beside)})" if beside else str(row["uuid"])


def _uuids(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(row["uuid"]): row for row in rows if row.get("uuid")}
