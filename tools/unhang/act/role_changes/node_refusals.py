"""Reasons to leave the driver or the kernel of a node alone, whatever its policy. Values in, values
out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict

Fact = Callable[[str], Any]
"""A fact by its path, None if it was not read."""
_OWNERS = {
    "runfile": (
        "NVIDIA's .run installer",
        "run nvidia-uninstall, reboot, and apply the role again",
    ),
    "container": (
        "a container runtime that mounts it into this node",
        "change the driver on the machine outside, and leave this one alone",
    ),
    "gpu_operator": (
        "NVIDIA's GPU Operator",
        "set driver.version in its ClusterPolicy, or set driver.enabled false there first",
    ),
    "unknown": (
        "something that no package owns",
        "find out who put the libraries there (dpkg -S, rpm -qf), and take them away",
    ),
}


class Refusal(TypedDict):
    """A reason against a change, as a plan has it; text is the line for people."""

    id: str
    expected: str
    found: str
    where: str
    next: str
    text: str


def refusal(kind: str, expected: str, found: str, where: str, next_step: str) -> Refusal:
    return {
        "id": kind,
        "expected": expected,
        "found": found,
        "where": where,
        "next": next_step,
        "text": f"{where}: the check found: {found}; the role needs {expected}; {next_step}",
    }


def ownership(fact: Fact, host: str) -> Iterator[Refusal]:
    """A driver that no package owns would stay installed beside the new one."""
    method = fact("driver.install_method")
    operated = fact("node.kubernetes.gpu_operator") and method != "packages"
    owner = "gpu_operator" if operated else str(method)
    if owner in _OWNERS:
        found, next_step = _OWNERS[owner]
        yield refusal(
            "driver-owner",
            "a driver that the package manager owns, or none",
            f"one of {found}",
            host,
            next_step,
        )


def image(fact: Fact, host: str) -> Iterator[Refusal]:
    """A stateless node loses what is installed on it at its next boot."""
    if fact("node.image.kind") == "stateless":
        found = f"a stateless image ({fact('node.image.evidence') or 'its root is no disk'})"
        yield refusal(
            "stateless-image",
            "a system that keeps what is installed",
            found,
            host,
            "put the driver into that image and boot the node from it",
        )


def kernel_refusals(fact: Fact, loader: Mapping[str, Any]) -> list[str]:
    """Reasons why this node's kernel cannot be set on the node; [] if it can. loader: of the module
    boot_trial."""
    if fact("node.virtualization.is_container"):
        return [
            "this is a container ({}), not a machine: its kernel is the machine's".format(
                fact("node.virtualization.kind")
            )
        ]
    if fact("node.image.kind") == "stateless":
        why = fact("node.image.evidence")
        return [
            f"this is a stateless image ({why}), not an installed system: put the kernel into that"
            " image, for nothing here outlives a boot"
        ]
    if fact("node.os.family") != "debian":
        found = fact("node.os.family")
        return [
            f"the system's family is {found}, not debian: install the kernel by"
            " hand; the module boot_trial can try it"
        ]
    if fact("kernel.out_of_tree") is None:
        return ["the list of loaded modules was not read; run as root"]
    if loader.get("refused"):
        return [loader["refused"]]
    if loader.get("can_clear_one_shot") is not True:
        why = loader.get("why_not") or "the place of its environment block is not known"
        return [
            f"the boot loader cannot clear its one-shot entry ({why}): the trial would be started"
            " again and again"
        ]
    return []
