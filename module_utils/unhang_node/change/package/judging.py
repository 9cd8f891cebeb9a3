"""Whether what apt would do is what was asked for. Values in, values out."""

from __future__ import annotations

import fnmatch

WHOLE = "installed"


def is_met(request, installed):
    """True when nothing has to be done, unfinished packages apart. request: options of package_change, as a dict; installed: Installed."""
    for name, version in request["install"].items():
        package = installed.packages.get(name)
        if package is None or not version or package.version != version:
            return False
    if any(name in installed.packages for name in request["remove"]):
        return False
    return not unexpected(request["expect"], {name: package.version for name, package in installed.packages.items()})


def versions_after(installed, steps):
    """{name: version} as it will be once the steps are taken."""
    versions = {name: package.version for name, package in installed.packages.items()}
    for step in steps:
        if step.after is None:
            versions.pop(step.name, None)
        else:
            versions[step.name] = step.after
    return versions


def unexpected(expect, versions):
    """A line for each package that is not of the version that is expected. expect: {name: version or glob}."""
    return [
        "expected {} {}, found that {} comes".format(name, pattern, versions.get(name, "none"))
        for name, pattern in sorted(expect.items())
        if not fnmatch.fnmatchcase(versions.get(name, ""), pattern)
    ]


def refusals(request, installed, steps):
    """Why the steps are not what was asked for, a line each; none when they are."""
    after = versions_after(installed, steps)
    told = [
        "expected {} {}, found that {} comes".format(name, version or "of any version", after.get(name, "none"))
        for name, version in sorted(request["install"].items())
        if name not in after or (version and after[name] != version)
    ]
    told += ["expected {} to go, found that it stays".format(name) for name in sorted(request["remove"]) if name in after]
    told += [line for line in unexpected(request["expect"], after) if line not in told]
    for step in steps:
        told.extend(_of_step(step, request, installed))
    return told


def _of_step(step, request, installed):
    name = step.name.split(":")[0]
    if step.action == "remove" and step.name not in request["remove"] and not any(fnmatch.fnmatchcase(name, glob) for glob in request["allow_remove"]):
        yield "{} {} would be removed, which nobody asked for; name it in remove, or allow it with allow_remove".format(step.name, step.before)
    if step.action == "downgrade" and not request["allow_downgrade"]:
        yield "{} would go down from {} to {}; allow_downgrade: true allows it".format(step.name, step.before, step.after)
    package = installed.packages.get(step.name)
    if package is None or not package.held:
        return
    if name not in installed.ours:
        yield "{} is on hold, and not by unhang; look why, then apt-mark unhold {}".format(step.name, step.name)
    elif not request["change_held"]:
        yield "{} is on hold by unhang; change_held: true lets it move".format(step.name)


def read_back(request, before, steps, installed):
    """(versions of what was named, [line of what is not as the steps said], [line of what was expected otherwise]) after a change.

    before, installed: Installed; the versions are {name: version, None for what is not there}.
    """
    versions = {name: package.version for name, package in installed.packages.items()}
    wanted = versions_after(before, steps)
    wrong = [
        "expected {} {}, found {}".format(step.name, step.after or "gone", versions.get(step.name) or "it gone")
        for step in steps
        if versions.get(step.name) != wanted.get(step.name)
    ]
    named = sorted(set(request["install"]) | set(request["expect"]))
    return {name: versions.get(name) for name in named}, wrong, unexpected(request["expect"], versions)


def not_offered(request, offers):
    """A line for each version that no repository has, with what is on offer."""
    told = []
    for name, version in sorted(request["install"].items()):
        known = [row["version"] for row in offers.get(name.split(":")[0], ())]
        if not known:
            told.append("expected {}, found that no repository of this node has a package of that name".format("{} {}".format(name, version).strip()))
        elif version and version not in known:
            told.append("expected {} {}, found on offer: {}".format(name, version, ", ".join(known[:8])))
    return told


def whole(installed, names):
    """Names of packages that are not installed to the end."""
    return [name for name in names if name in installed.packages and installed.packages[name].state != WHOLE]
