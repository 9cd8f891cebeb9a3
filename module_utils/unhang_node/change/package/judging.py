"""Judges whether the package manager's simulation does what was requested, and nothing else. Values
in, values out."""

from __future__ import annotations

import fnmatch
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from .values import Installed, Offers, Request, Step

CONFIGURED = "installed"  # dpkg's name of this state


def is_met(request: Request, installed: Installed) -> bool:
    """True when nothing has to be done, except for packages that are not configured."""
    for name, version in request.install.items():
        package = installed.packages.get(name)
        if package is None or not version or package.version != version:
            return False
    if any(name in installed.packages for name in request.remove):
        return False
    return not unexpected(
        request.expect, {name: package.version for name, package in installed.packages.items()}
    )


def versions_after(installed: Installed, steps: Sequence[Step]) -> Dict[str, str]:
    """{name: version} after the steps."""
    versions = {name: package.version for name, package in installed.packages.items()}
    for step in steps:
        if step.after is None:
            versions.pop(step.name, None)
        else:
            versions[step.name] = step.after
    return versions


def unexpected(expect: Mapping[str, str], versions: Mapping[str, str]) -> List[str]:
    """A line for each package without its expected version. expect: {name: version or pattern}."""
    return [
        f"{name} would be {versions.get(name, 'absent')} afterwards, not {pattern}"
        for name, pattern in sorted(expect.items())
        if not fnmatch.fnmatchcase(versions.get(name, ""), pattern)
    ]


def refusals(request: Request, installed: Installed, steps: Sequence[Step]) -> List[str]:
    """The differences between the steps and the request, a line each; none if the steps are what
    was requested."""
    after = versions_after(installed, steps)
    lines = [
        f"{name} would be {after.get(name, 'absent')} afterwards, not {version or 'installed'}"
        for name, version in sorted(request.install.items())
        if name not in after or (version and after[name] != version)
    ]
    lines += [
        f"{name} would stay, and was to go" for name in sorted(request.remove) if name in after
    ]
    lines += [line for line in unexpected(request.expect, after) if line not in lines]
    for step in steps:
        lines.extend(_of_step(step, request, installed))
    return lines


def _of_step(step: Step, request: Request, installed: Installed) -> Iterator[str]:
    name = step.name.split(":")[0]
    if (
        step.action == "remove"
        and step.name not in request.remove
        and not any(fnmatch.fnmatchcase(name, glob) for glob in request.allow_remove)
    ):
        yield (
            f"{step.name} {step.before} would be removed, which was not requested; name it in"
            " remove, or allow it with allow_remove"
        )
    if step.action == "downgrade" and not request.allow_downgrade:
        yield (
            f"{step.name} would go down from {step.before} to {step.after}; allow_downgrade: true"
            " allows it"
        )
    package = installed.packages.get(step.name)
    if package is None or not package.held:
        return
    if name not in installed.ours:
        yield (
            f"{step.name} is on hold, and not by unhang; look why, then apt-mark unhold {step.name}"
        )
    elif not request.change_held:
        yield f"{step.name} is on hold by unhang; change_held: true lets it move"


def read_back(
    request: Request, before: Installed, steps: Sequence[Step], installed: Installed
) -> Tuple[Dict[str, Optional[str]], List[str], List[str]]:
    """(versions of the requested packages, [line for each package that differs from its step],
    [line for each package that differs from `expect`]) after a change. before, installed: the
    packages before and after it; a version is None if the package is not installed."""
    versions = {name: package.version for name, package in installed.packages.items()}
    wanted = versions_after(before, steps)
    wrong = [
        f"{step.name} is {versions.get(step.name) or 'gone'}, not {step.after or 'gone'}"
        for step in steps
        if versions.get(step.name) != wanted.get(step.name)
    ]
    judged = {step.name for step in steps}
    wrong += [
        f"{name} {before.version(name)} is gone, and was to stay"
        for name in sorted(set(before.packages) - set(versions) - judged)
    ]
    named = sorted(set(request.install) | set(request.expect))
    return {name: versions.get(name) for name in named}, wrong, unexpected(request.expect, versions)


def not_offered(request: Request, offers: Offers) -> List[str]:
    """A line for each version that no repository offers, with the offered ones."""
    lines = []
    for name, version in sorted(request.install.items()):
        known = [row["version"] for row in offers.get(name.split(":")[0], ())]
        if not known:
            lines.append(f"no repository of this node has a package {f'{name} {version}'.strip()}")
        elif version and version not in known:
            lines.append(f"{name} {version} is not on offer; on offer are: {', '.join(known[:8])}")
    return lines


def not_configured(installed: Installed, names: Iterable[str]) -> List[str]:
    """Names of packages that are not configured."""
    return [
        name
        for name in names
        if name in installed.packages and installed.packages[name].state != CONFIGURED
    ]
