"""The disruption of one node by a plan: versions before and after, reboots, jobs. Values in,
values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unhang.act.plan.departures import fact, nccl_package, suits
from unhang.act.plan.plan_document import Job, Reboot
from unhang.core.catalogue.own_tables import table
from unhang.core.gpu_verbs import REBOOT, TABLES, gpu_verbs
from unhang.core.schemas.policy import Policy
from unhang.core.strict_json import value_at

_VERSIONED = {"kernel": "kernel", "gpu_driver": "driver", "nccl_profile": "nccl"}
OF_A_KIND = (
    *(
        "gpus.model",
        "gpus.count",
        "node.dmi.vendor",
        "node.dmi.product",
        "node.architecture",
        "node.os.id",
        "node.os.version_id",
        "node.image.kind",
    ),
    *("kernel.release", "driver.loaded.version", "driver.loaded.flavour"),
)


def versions(role: str, policy: Policy, sections: Any) -> tuple[str | None, str | None]:
    """(version before, version after) of what the role installs; None if there is none, or it was
    not read."""
    if role == "fabric_manager":
        _, driver = versions("gpu_driver", policy, sections)
        return fact(sections, "fabric_manager.version"), driver or fact(
            sections, "driver.loaded.version"
        )
    if role == "build_toolchain":
        return fact(sections, "cuda.default.version"), (policy.get("torch") or {}).get("cuda") or (
            policy.get("cuda") or {}
        ).get("version")
    if role not in _VERSIONED:
        return None, None
    paths = {"kernel": "kernel.release", "gpu_driver": "driver.loaded.version"}
    before = fact(sections, paths[role]) if role in paths else nccl_package(sections)
    return before, _asked(policy.get(_VERSIONED[role]) or {})


def _asked(desired: Mapping[str, Any]) -> str | None:
    if desired.get("version"):
        return str(desired["version"])
    bounds = [
        f"{desired[key]} or {word}"
        for key, word in (("min", "newer"), ("max", "older"))
        if desired.get(key)
    ]
    return ", ".join(bounds) or None


def reboots(roles: Iterable[str], policy: Policy, sections: Any) -> list[Reboot]:
    """The maximum number of reboots. All roles share one; a new kernel needs a trial boot in
    addition; a rollback may need one for each of the two."""
    roles, found = set(roles), []
    release = fact(sections, "kernel.release")
    trial = "kernel" in roles and not (
        release and suits(release, policy.get("kernel") or {}, "kernel")
    )
    if trial:
        found.append(Reboot("trial", f"trial boot of kernel {_asked(policy.get('kernel') or {})}"))
    why = [(role, reason) for role, reason in _reasons(policy, sections) if role in roles]
    if why:
        found.append(Reboot("apply", "; ".join(reason for _, reason in why)))
    if trial:
        found.append(
            Reboot("rollback", f"back to kernel {release}, after the trial or by a rollback")
        )
    if any(role != "gpu_reset" for role, _ in why):
        found.append(Reboot("rollback", "back to what was loaded before"))
    return found


def _reasons(policy: Policy, sections: Any) -> list[tuple[str, str]]:
    """(role, why its change needs a reboot)."""
    host, reasons = policy.get("host") or {}, []
    if fact(sections, "driver.loaded.is_loaded") is not False or fact(
        sections, "driver.nouveau_loaded"
    ):
        reload = (policy.get("driver") or {}).get("reload")
        reasons.append(
            (
                "gpu_driver",
                "the new driver is loaded"
                + (", unless its modules can be exchanged" if reload else ""),
            )
        )
    if (
        host.get("iommu")
        and fact(sections, "interconnect.iommu.mode") != host["iommu"]
        and not fact(sections, "node.virtualization.is_vm")
    ):
        reasons.append(("host_tuning", "host.iommu counts from the next boot on"))
    if host.get("nvidia_parameters"):
        reasons.append(
            ("host_tuning", "host.nvidia_parameters count from the next load of the driver on")
        )
    verbs = gpu_verbs(sections, {name: table(name) for name in TABLES})
    reasons += [
        ("gpu_reset", f"{one.name}: {', '.join(one.because)}")
        for one in verbs
        if one.verb == REBOOT
    ]
    return reasons


def jobs(sections: Any) -> list[Job] | None:
    """Processes on the GPUs, by pid; None if they could not be read for any GPU."""
    devices = fact(sections, "gpus.devices")
    lists = [
        (device.index, device.processes) for device in devices or () if device.processes is not None
    ]
    if devices is None or (devices and not lists):
        return None
    found: dict[int | None, tuple[Any, set[int]]] = {}
    for index, processes in lists:
        for process in processes:
            found.setdefault(process.pid, (process, set()))[1].add(index)
    return [
        Job(pid, process.user, process.command, tuple(sorted(gpus)))
        for pid, (process, gpus) in sorted(found.items(), key=lambda one: one[0] or 0)
    ]


def scheduler(sections: Any) -> str | None:
    """slurm or kubernetes, whose daemon the node has; none without either; None if that is not
    certain: it was not read, or the node has both."""
    daemons = {
        "slurm": fact(sections, "node.slurm.slurmd"),
        "kubernetes": fact(sections, "node.kubernetes.kubelet"),
    }
    found = [name for name, is_there in daemons.items() if is_there]
    if None in daemons.values() or len(found) > 1:
        return None
    return found[0] if found else "none"


def kind_of(sections: Any) -> str:
    """The node's hardware and image, as one text: nodes with the same text share a canary.
    sections: typed."""
    return " / ".join(str(fact(sections, path)) for path in OF_A_KIND)


def kind_of_plain(sections: Mapping[str, Any]) -> str:
    """The same for plain sections from a node's file."""
    return " / ".join(str(value_at(sections, path.split("."))) for path in OF_A_KIND)
