"""Reasons not to install a driver on a node: each refusal gives expected, found, where, and the
next step. A pure function of its inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from unhang.act.role_changes.driver_inputs import (
    DriverInputs,
    architectures,
    boot_release,
    is_without_kernels,
)
from unhang.act.role_changes.driver_packages import PackageSet, flavour_faults
from unhang.act.role_changes.node_refusals import Refusal, image, ownership, refusal
from unhang_node.base.parse.nvidia_driver import branch_of
from unhang_node.base.versions.compare import compare_versions, holds

SHOWN_USERS = 8
LET_END = "let it end or drain the node"
# A share of a card in a virtual machine, and a Jetson: their drivers have branches of their own.
# Source: docs.nvidia.com/vgpu, "NVIDIA vGPU Software Driver Versions"; the Jetson Linux archive
OTHER_FAMILY = re.compile(r"^GRID |-\d{1,3}[ABCQ]$|\(nvgpu\)|^NVIDIA Thor")
BUILT_ON_NODE = ("dkms", "cuda-drivers", "nvidia-open")


def gpus(inputs: DriverInputs, version: str, flavour: str) -> Iterator[Refusal]:
    branch = branch_of(version) or ""
    rows = [
        (
            "a driver that the node's GPUs run with",
            fault,
            "name another version or flavour in unhang_policy.driver",
        )
        for fault in flavour_faults(architectures(inputs), branch, flavour, inputs.tables)
    ]
    known = {row["name"]: row for row in inputs.tables["gpu_models"]}
    for model in sorted({gpu.get("model") or "" for gpu in inputs.fact("gpus.devices") or ()}):
        row, asked = known.get(model, {}), f"{version} {flavour} asked for"
        first = row.get("first_driver")
        if OTHER_FAMILY.search(model):
            wanted = "the driver of the host's vGPU release, or of JetPack"
            rows.append((f"{wanted}, for {model}", asked, "install that one without this role"))
        if first and holds(compare_versions(version, first, "driver"), "<"):
            wanted = f"driver {first} or newer for {model}"
            rows.append((wanted, asked, "name a newer one in unhang_policy.driver"))
        if row.get("modules") == "open" and flavour != "open":
            wanted = f"open modules for {model}"
            rows.append((wanted, asked, "set unhang_policy.driver.flavour to open"))
    for expected, found, next_step in rows:
        yield refusal("gpu-not-served", expected, found, inputs.host, next_step)


def cuda(inputs: DriverInputs, version: str) -> Iterator[Refusal]:
    """Programs whose CUDA version needs a newer driver than this one."""
    if inputs.fact("cuda.forward_compat"):
        return
    floors = {str(row["major"]): row["driver"] for row in inputs.tables["cuda_majors"]}
    for used, by in sorted(cuda_in_use(inputs)):
        floor = floors.get(used.split(".")[0])
        if floor and holds(compare_versions(version, floor, "driver"), "<"):
            yield refusal(
                "cuda-not-served",
                f"driver {floor} or newer",
                f"driver {version} asked for, and CUDA {used} in use by {by}",
                inputs.host,
                "name a newer driver, or bring that environment to an older CUDA",
            )


def cuda_in_use(inputs: DriverInputs) -> set[tuple[str, str]]:
    """(CUDA version, who uses it): torch environments, the default toolkit, and what the policy
    asks for."""
    found = {
        (str(row["cuda"]), f"torch in {row.get('path')}")
        for row in inputs.fact("torch.environments") or ()
        if row.get("cuda")
    }
    toolkit = inputs.fact("cuda.default.version")
    if toolkit:
        found.add((str(toolkit), f"the toolkit in {inputs.fact('cuda.default.path')}"))
    asked = inputs.policy.get("cuda") or {}
    found |= {
        (str(asked[key]), f"unhang_policy.cuda.{key}") for key in ("version", "min") if key in asked
    }
    if (inputs.policy.get("torch") or {}).get("cuda"):
        found.add((str(inputs.policy["torch"]["cuda"]), "unhang_policy.torch.cuda"))
    return found


def is_built_here(packages: PackageSet) -> bool:
    return any(mark in name for name in packages.packages for mark in BUILT_ON_NODE)


def headers(inputs: DriverInputs, packages: PackageSet) -> Iterator[Refusal]:
    """Without kernel headers the modules cannot be built, and the node boots without GPUs."""
    release = boot_release(inputs)
    if not is_built_here(packages) or release is None:
        return
    listed = inputs.fact("kernel.installed")
    if listed is None and not is_without_kernels(inputs):
        yield refusal(
            "kernels-not-read",
            f"headers of {release}, the kernel that boots next",
            "the installed kernels were not read",
            inputs.host,
            "look why (unread of the section kernel), and audit again",
        )
    rows = {row["release"]: row for row in listed or ()}
    if rows.get(release, {}).get("headers") is False or (rows and release not in rows):
        name = (
            f"kernel-devel-{release}"
            if inputs.fact("node.os.family") == "redhat"
            else f"linux-headers-{release}"
        )
        yield refusal(
            "no-headers",
            f"headers of {release}, the kernel that boots next",
            f"no /lib/modules/{release}/build",
            inputs.host,
            f"install {name}, or let the role kernel choose a kernel that has them",
        )


def secure_boot(inputs: DriverInputs, packages: PackageSet) -> Iterator[Refusal]:
    """Under Secure Boot a kernel loads only modules signed with a key that it knows. The modules
    that it loaded before were signed with such a key."""
    if (
        not inputs.fact("node.secure_boot")
        or not is_built_here(packages)
        or inputs.options.module_key_enrolled
        or inputs.fact("node.module_key.enrolled")
    ):
        return
    running = inputs.fact("kernel.release")
    built = any(
        row["kernel"] == running
        and row["state"] == "installed"
        and row["module"].startswith("nvidia")
        for row in inputs.fact("kernel.dkms") or ()
    )
    if built and inputs.fact("driver.loaded.is_loaded"):
        return
    next_step = (
        "enrol it (mokutil --import /var/lib/dkms/mok.pub, reboot, confirm at the console), or take"
        " ready-built, signed modules"
    )
    yield refusal(
        "secure-boot",
        "a key for the modules that the firmware knows",
        f"Secure Boot on, and {inputs.fact('node.module_key.path') or 'no key of DKMS'} not"
        " enrolled",
        inputs.host,
        next_step,
    )


def in_use(inputs: DriverInputs, next_step: str, monitors: bool = False) -> Iterator[Refusal]:
    """Programs that hold the GPUs and are none of the services that a role stops and starts again.
    monitors: also daemons that only monitor them, under which the driver's files may change."""
    found = [] if inputs.options.allow_in_use else foreign_users(inputs, monitors)
    more = len(found) - SHOWN_USERS
    for row in [*found[:SHOWN_USERS], *([f"{more} users more"] if more > 0 else [])]:
        yield refusal("gpus-in-use", "GPUs that nobody uses", row, inputs.host, next_step)


def foreign_users(inputs: DriverInputs, monitors: bool = True) -> list[str]:
    """A text for each process and each kernel module that holds the GPUs and that no known service
    accounts for. monitors: also daemons that only monitor them."""
    names = {
        gpu.get("minor"): f"GPU {gpu['index']} ({gpu.get('uuid')})"
        for gpu in inputs.fact("gpus.devices") or ()
    }
    rows = []
    for user in inputs.users.get("processes") or ():
        if user.get("service") is None and (monitors or user.get("computes", True)):
            places = ", ".join(_gpu(device, names) for device in user["devices"])
            owner = user.get("user") if user.get("computes", True) else user["unit"]
            rows.append(f"process {user['pid']} ({user.get('command')}) of {owner} on {places}")
    rows += [
        f"the kernel module {name}, which needs the driver"
        for name in inputs.users.get("foreign_modules") or ()
    ]
    # else the module's users are the processes that are listed
    if not inputs.users.get("processes"):
        rows += [
            f"the kernel module {row['name']}, held {row['holds']} times by no process"
            for row in inputs.users.get("modules_held") or ()
        ]
    return rows


def partitioned_gpus(inputs: DriverInputs) -> list[str]:
    """A text for each GPU in MIG mode: a reset or a reload of the driver deletes its instances, and
    only a service that runs at boot creates them again."""
    on = [gpu for gpu in inputs.fact("gpus.devices") or () if (gpu.get("mig") or {}).get("enabled")]
    return [
        f"GPU {gpu['index']} ({gpu.get('uuid')}) is in MIG mode, and its instances would be gone"
        for gpu in on
    ]


def _gpu(device: str, names: Mapping[int, str]) -> str:
    number = device.removeprefix("/dev/nvidia")
    return names.get(int(number), device) if number.isdigit() else device


def proof(inputs: DriverInputs, packages: PackageSet) -> Iterator[Refusal]:
    """A package set that no package manager has resolved yet."""
    if packages.proof == "table" and not inputs.options.accept_unproved:
        found = f"{', '.join(packages.packages)}, which is only written down"
        yield refusal(
            "unproved",
            "a package set that was tried",
            found,
            inputs.host,
            "try it on one node with gpu_driver_accept_unproved: true",
        )


def streams(inputs: DriverInputs, packages: PackageSet) -> Iterator[Refusal]:
    """The branch is a module stream of dnf, and the repository has module streams but not this
    one."""
    for module, stream in packages.streams.items():
        offered = inputs.streams.get(module, {}).get("streams")
        if offered and stream not in offered:
            next_step = (
                "name a branch and flavour in unhang_policy.driver that is on offer, or add the"
                " repository that has it"
            )
            yield refusal(
                "no-stream",
                f"module stream {module}:{stream}",
                f"on offer: {', '.join(offered)}",
                inputs.host,
                next_step,
            )


def refusals(
    inputs: DriverInputs, packages: PackageSet, version: str, flavour: str
) -> list[Refusal]:
    """All reasons not to install these packages, which have this version and flavour."""
    return [
        *ownership(inputs.fact, inputs.host),
        *image(inputs.fact, inputs.host),
        *gpus(inputs, version, flavour),
        *cuda(inputs, version),
        *headers(inputs, packages),
        *secure_boot(inputs, packages),
        *in_use(
            inputs,
            f"{LET_END}; gpu_driver_allow_in_use changes the files under it and leaves the rest to"
            " a reboot",
        ),
        *proof(inputs, packages),
        *streams(inputs, packages),
    ]
