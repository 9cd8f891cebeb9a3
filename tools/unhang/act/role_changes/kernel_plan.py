"""Plans the change to the policy's kernel: release, packages, the modules that it needs, and
reasons to refuse. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.act.role_changes.node_refusals import kernel_refusals
from unhang.core.strict_json import value_at
from unhang.core.text import listed
from unhang_node.base.parse.values import release_key
from unhang_node.base.versions.compare import compare_versions

# Package names in Debian's and Ubuntu's archives contain the kernel's release; the package has a
# version of its own in addition.
IMAGE = re.compile(r"^linux-image-(?:unsigned-)?(\d+\.\d+(?:[.+~-][0-9A-Za-z.+~]+)*)$")
NO_IMAGE = re.compile(r"-(?:dbg|dbgsym|unsigned)$")
# Packages that must be installed with a new kernel if the running one has them: without them the
# node may lack a device or a file system.
NEEDED = ("linux-modules-nvidia-", "linux-modules-extra-", "linux-headers-")
LISTED = 8


@dataclass(frozen=True)
class KernelInputs:
    """One node: sections of its facts, its policy's part `kernel`, offered packages, state of the
    last trial, and the operator's permissions."""

    sections: Mapping[str, Mapping[str, Any]]
    desired: Mapping[str, Any]
    offers: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    packages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trial: Mapping[str, Any] = field(default_factory=dict)
    headers: bool = True
    without_modules: tuple[str, ...] = ()
    retry: bool = False
    reboot: bool = False
    busy: bool = False

    def fact(self, path: str) -> Any:
        """A fact by its path, None if it was not read."""
        return value_at(self.sections, path.split("."))


def names_to_ask(sections: Mapping[str, Any]) -> list[str]:
    """Packages (globs) whose offered versions plan_kernel needs: kernels, and the further packages
    of the running one."""
    inputs = KernelInputs(sections, {})
    running = inputs.fact("kernel.release") or ""
    beside = {
        row["name"].replace(running, "*")
        for row in inputs.fact("packages.installed") or ()
        if running and running in row["name"]
    }
    beside |= {
        row["name"].replace(running, "*")
        for row in inputs.fact("driver.packages") or ()
        if running and running in row["name"]
    }
    return sorted(
        {
            "linux-image-[0-9]*",
            "linux-image-unsigned-[0-9]*",
            "linux-headers-[0-9]*",
            *([f"linux-*-{running}"] if running else []),
            *beside,
        }
    )


def plan_kernel(inputs: KernelInputs) -> dict[str, Any]:
    """The plan.

    {action, release, running, packages: {name: version}, modules: [names], gpus: [identities],
    notes: [lines], problems: [lines]} action: none; select (it runs, but another one would boot
    next); install (packages, then a trial); verify (it runs on trial). With problems no action is
    taken.
    """
    running = inputs.fact("kernel.release")
    plan: dict[str, Any] = {
        "action": "none",
        "release": running,
        "running": running,
        "packages": {},
        "modules": [],
        "gpus": [],
        "notes": [],
        "problems": [],
    }
    if not (inputs.desired.get("version") or inputs.desired.get("min")):
        return {**plan, "notes": ["unhang_policy names no kernel.version and no kernel.min"]}
    if not running:
        return {
            **plan,
            "problems": ["the release of the running kernel was not read"],
        }
    if (
        _suits(inputs, running)
        and _suits(inputs, inputs.fact("kernel.boot.default_release") or running)
        and inputs.trial.get("standing") not in ("on_trial", "armed")
    ):
        return plan
    problems = kernel_refusals(inputs.fact, inputs.trial.get("loader") or {})
    if problems:
        return {**plan, "problems": problems}
    plan = {**plan, "gpus": gpu_identities(inputs), "modules": needed_modules(inputs)}
    if _suits(inputs, running):
        return {
            **plan,
            "action": "verify" if inputs.trial.get("standing") == "on_trial" else "select",
        }
    return _to_install(inputs, plan)


def _to_install(inputs: KernelInputs, plan: dict[str, Any]) -> dict[str, Any]:
    release, notes = choose_release(inputs)
    plan = {**plan, "notes": notes}
    if release is None:
        return {**plan, "problems": [not_offered(inputs)]}
    packages, problems = packages_of(inputs, release)
    problems += space_problems(inputs, release) + trial_problems(inputs, release)
    if inputs.reboot and not inputs.busy:
        problems += users_of_gpus(inputs)
    return {
        **plan,
        "action": "install",
        "release": release,
        "packages": packages,
        "problems": problems,
    }


def choose_release(inputs: KernelInputs) -> tuple[str | None, list[str]]:
    """(release or None, notes): the exact release of the policy; for a minimum the newest release
    of the nearest series that satisfies it, of the running flavour."""
    known = sorted(known_releases(inputs), key=release_key)
    if inputs.desired.get("version"):
        wanted = str(inputs.desired["version"])
        if wanted in known:
            return wanted, []
        fitting = [
            release
            for release in known
            if flavour_of(release) == flavour_of(inputs.fact("kernel.release"))
            and _suits(inputs, release)
        ]
        return (fitting[-1] if fitting else None), []
    flavour = flavour_of(inputs.fact("kernel.release"))
    fitting = [
        release for release in known if flavour_of(release) == flavour and _suits(inputs, release)
    ]
    if not fitting:
        return None, []
    nearest = series_of(fitting[0])
    chosen = [release for release in fitting if series_of(release) == nearest][-1]
    newer = [
        ".".join(map(str, series))
        for series in sorted({series_of(release) for release in fitting} - {nearest})
    ]
    message = (
        f"{chosen} is of the series nearest to the minimum; there are {', '.join(newer)} too, for"
        " who names one in kernel.version"
    )
    return chosen, [message] if newer else []


def _on_disk(inputs: KernelInputs) -> set[str]:
    """Releases whose kernel is on the disk."""
    return {row["release"] for row in inputs.fact("kernel.installed") or () if row.get("image")}


def known_releases(inputs: KernelInputs) -> set[str]:
    """Releases that are offered or on the disk."""
    return _on_disk(inputs) | {
        release for name in inputs.offers for release in [release_of_package(name)] if release
    }


def release_of_package(name: str) -> str | None:
    """6.1.0-56-amd64 from linux-image-6.1.0-56-amd64; None for packages without a kernel of their
    own (debug symbols, unsigned beside signed)."""
    found = IMAGE.match(name)
    return found.group(1) if found and not NO_IMAGE.search(name) else None


def flavour_of(release: str) -> str:
    """cloud-amd64 from 6.1.0-56-cloud-amd64, generic from 6.8.0-85-generic, amd64 from
    6.12.12+bpo-amd64; "" for a release without a flavour."""
    parts = release.split("-")
    first = next(
        (number for number, word in enumerate(parts[1:], 1) if word[:1].isalpha()), len(parts)
    )
    return "-".join(parts[first:])


def series_of(release: str) -> tuple[int, ...]:
    """(6, 8) from 6.8.0-85-generic."""
    return tuple(int(number) for number in re.findall(r"\d+", release)[:2])


def _suits(inputs: KernelInputs, release: str) -> bool:
    """True if this release satisfies the policy, by the same comparison as the audit's rules."""
    if inputs.desired.get("version"):
        equal = compare_versions(release, str(inputs.desired["version"]), "kernel").equal
        if not equal or (
            flavour_of(str(inputs.desired["version"]))
            and flavour_of(release) != flavour_of(str(inputs.desired["version"]))
        ):
            return False
    if inputs.desired.get("min"):
        sign = compare_versions(release, str(inputs.desired["min"]), "kernel").sign
        return sign is not None and sign >= 0
    return True


def not_offered(inputs: KernelInputs) -> str:
    """The problem that no kernel fits, with the wanted and the known releases."""
    wanted = str(inputs.desired.get("version") or f"{inputs.desired['min']} or newer")
    flavour = flavour_of(inputs.fact("kernel.release"))
    known = sorted(known_releases(inputs), key=release_key, reverse=True)
    own = [release for release in known if flavour_of(release) == flavour]
    others = sorted({flavour_of(release) for release in known} - {flavour})
    message = (
        f"the node's repositories have no kernel {wanted}; of its flavour {flavour or 'none'} they"
        f" have: {_listed(own)}"
    )
    return message + (
        f"; kernel.version can name another flavour: {_listed(others)}" if others else ""
    )


def packages_of(inputs: KernelInputs, release: str) -> tuple[dict[str, str], list[str]]:
    """({name: version} to install, problems): the image, its headers, and the counterpart of each
    package of the running kernel."""
    running, problems = inputs.fact("kernel.release"), []
    names = {
        name[: -len(running)] + release
        for name in inputs.packages
        if name.endswith("-" + running) and _is_there(inputs, name)
    }
    if not any(release_of_package(name) == release for name in names):
        names.add(f"linux-image-{release}")
    if inputs.headers:
        names.add(f"linux-headers-{release}")
    packages = {}
    for name in sorted(names):
        if _is_there(inputs, name):
            continue
        if inputs.offers.get(name):
            packages[name] = inputs.offers[name][0]["version"]
        elif release_of_package(name) or name.startswith(NEEDED):
            problems.append(
                f"the node's repositories have no package {name}; what the running kernel has from"
                f" it, {release} would not have"
            )
    return packages, problems


def _is_there(inputs: KernelInputs, name: str) -> bool:
    return (inputs.packages.get(name) or {}).get("state") == "installed"


def space_problems(inputs: KernelInputs, release: str) -> list[str]:
    """A line if the kernel does not fit in /boot."""
    space = inputs.trial.get("space") or {}
    if release in _on_disk(inputs):
        return []
    if space.get("free_mib") is None:
        return ["how much room /boot has could not be read: {}".format(space.get("unread"))]
    if space["free_mib"] < space["need_mib"]:
        old = sorted(_on_disk(inputs) - {inputs.fact("kernel.release")}, key=release_key)
        message = (
            f"/boot has {space['free_mib']} MiB free, and one more kernel needs {space['need_mib']}"
            " MiB"
        )
        return [message + (f"; remove one that is not needed: {_listed(old)}" if old else "")]
    return []


def trial_problems(inputs: KernelInputs, release: str) -> list[str]:
    """A line if the kernel fell back in an earlier trial: it is tried again only on request."""
    tried = inputs.trial.get("trial") or {}
    if (
        inputs.trial.get("standing") == "fell_back"
        and tried.get("release") == release
        and not inputs.retry
    ):
        return [
            f"{release} was tried and fell back ({tried.get('at')}): {inputs.trial.get('why')};"
            " mend it, then say kernel_retry: true"
        ]
    return []


def users_of_gpus(inputs: KernelInputs) -> list[str]:
    """Processes that a reboot would end."""
    found = []
    for device in inputs.fact("gpus.devices") or ():
        for process in device.get("processes") or ():
            found.append(
                f"pid {process.get('pid')} of {process.get('user')} on GPU {device.get('index')}"
            )
    return (
        [
            f"a job is on the GPUs, and the node is going to boot: {_listed(found)}; drain it, or"
            " say kernel_reboot_busy: true"
        ]
        if found
        else []
    )


def needed_modules(inputs: KernelInputs) -> list[str]:
    return sorted(set(inputs.fact("kernel.out_of_tree") or ()) - set(inputs.without_modules))


def gpu_identities(inputs: KernelInputs) -> list[str]:
    """UUIDs of the GPUs that answer; a GPU without a handle counts as missing."""
    devices = inputs.fact("gpus.devices") or ()
    return sorted(
        str(device.get("uuid") or device.get("pci_address"))
        for device in devices
        if not device.get("error")
    )


def faults_after(inputs: KernelInputs, before: Mapping[str, Any]) -> list[str]:
    """Reasons against keeping a kernel that is on trial, from the facts read under it. before:
    {release, modules, gpus} of the trial."""
    running, faults = inputs.fact("kernel.release"), []
    if running != before["release"]:
        return [f"kernel {running} runs, not {before['release']}"]
    lost = sorted(set(before["gpus"]) - set(gpu_identities(inputs)))
    if lost:
        faults.append(
            f"of the {len(before['gpus'])} GPUs of before, {len(lost)} are gone: {_listed(lost)}"
        )
    missing = sorted(set(before["modules"]) - set(inputs.fact("kernel.out_of_tree") or ()))
    if missing:
        faults.append(f"modules that were loaded before are missing: {_listed(missing)}")
    if inputs.fact("driver.mismatch"):
        faults.append(
            f"driver and libraries are not of one version: {inputs.fact('driver.mismatch_text')}"
        )
    return faults


def _listed(parts: Sequence[str]) -> str:
    return listed(parts, LISTED) or "none"
