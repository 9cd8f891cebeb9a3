"""A small apt repository on a node, of packages that dpkg-deb builds here in milliseconds."""

from __future__ import annotations

import hashlib
import os
import subprocess

FOLDER = "/srv/repository"
APT = "DEBIAN_FRONTEND=noninteractive apt-get -y -q"
CONTROL = (
    "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: testbed"
    " <root@localhost>\nDescription: x\n"
)


def build_package(folder, name, version, files=(), fields="", **scripts):
    """Builds a package of empty files (paths) and of links ("path -> target"). Gives its file.

    fields: further lines of its control file; scripts: postinst="..." and the like, without the
    first line.
    """
    tree = folder / f"{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(CONTROL.format(name=name, version=version) + fields)
    for script, text in scripts.items():
        (tree / "DEBIAN" / script).write_text(f"#!/bin/sh\n{text}\n")
        (tree / "DEBIAN" / script).chmod(0o755)
    for path, _arrow, target in (entry.partition(" -> ") for entry in files):
        place = tree / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if target:
            place.symlink_to(target)
        else:
            place.touch(mode=0o755)
    command = ["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(folder)]
    # The same bytes at each build, so that cached checksums stay valid.
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1"}
    )
    return folder / f"{name}_{version}_amd64.deb"


def packages_index(files):
    """The Packages file of a flat repository."""
    stanzas = []
    for path in files:
        control = subprocess.run(
            ["dpkg-deb", "--field", str(path)], check=True, capture_output=True, text=True
        ).stdout
        content = path.read_bytes()
        sums = (
            f"Filename: ./{path.name}\nSize: {len(content)}\nSHA256:"
            f" {hashlib.sha256(content).hexdigest()}\n"
        )
        stanzas.append(control + sums)
    return "\n".join(stanzas)


def serve(fleet, node, files):
    """Makes these packages the only ones that the node's apt can install, until the test ends."""
    names = " ".join(sorted({path.name.split("_")[0] for path in files}))
    fleet.plant(node, f"{FOLDER}/Packages", packages_index(files))
    for path in files:
        fleet.plant(node, f"{FOLDER}/{path.name}", path.read_bytes())
    fleet.plant(node, "/etc/apt/sources.list", f"deb [trusted=yes] file:{FOLDER} ./\n")
    undo = (
        f"apt-mark unhold {names}; dpkg --purge {names}; rm -rf /var/lib/unhang"
        " /var/lib/apt/lists/*srv*"
    )
    fleet.undo.callback(fleet.shell, node, f"({undo}) 2>&1")
    fleet.shell(node, f"{APT} update")
