"""The collection unhang.ops as a site has it: installed from its archive with ansible-galaxy, in an
environment of ansible-core and named packages alone, with Ansible's default configuration."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[2]
BUILDER = PROJECT / "tools" / "release" / "collection.py"
DEADLINE_S = 600
AUDIT = ("msgspec", "ClusterShell")


@dataclass(frozen=True)
class Site:
    """folder: home and current folder of a site that knows no checkout; python: its interpreter."""

    folder: Path
    python: Path

    @property
    def collection(self):
        """The folder of the installed collection."""
        return self.folder / ".ansible/collections/ansible_collections/unhang/ops"

    def environment(self, **more):
        """Nothing from the caller's environment."""
        return {
            "PATH": f"{self.python.parent}:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "False",
            **more,
        }

    def __call__(self, program, *arguments, **environment):
        """A finished `ansible-PROGRAM` in the folder."""
        return subprocess.run(
            [self.python, "-m", "ansible", program, *map(str, arguments)],
            cwd=self.folder,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=DEADLINE_S,
        )

    def write(self, name, text):
        """A file of the site."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def inventory(self, group="training", **variables):
        """hosts.yml with this machine, as `here`, in a group."""
        host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        hosts = {"here": {**host, **variables}}
        self.write("hosts.yml", yaml.safe_dump({group: {"hosts": hosts}}))


def build(folder):
    """The archive, built from this tree."""
    done = subprocess.run(
        [sys.executable, "-P", str(BUILDER), str(folder)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def install(archive, folder, packages=()):
    """A Site with the collection of this archive."""
    site = Site(folder / "site", environment_of(folder / "venv", ("ansible-core", *packages)))
    site.folder.mkdir()
    done = site("galaxy", "collection", "install", archive)
    assert done.returncode == 0, done.stderr
    return site


def environment_of(place, packages):
    """The interpreter of a new virtual environment with links to these packages of the tests' own
    environment, and to what they require. unhang is not among them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (target,) = place.glob("lib/python3*/site-packages")
    for name in required(packages):
        package = metadata.distribution(name)
        for top in {Path(file).parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (target / top).exists():
                (target / top).symlink_to(package.locate_file(top))
    return place / "bin" / "python"


def required(packages):
    """These distributions and all that they require here."""
    found, waiting = set(), list(packages)
    while waiting:
        name = waiting.pop()
        if name.lower() in found:
            continue
        found.add(name.lower())
        for needed in metadata.requires(name) or ():
            if "extra ==" not in needed:
                waiting.append(re.match(r"[\w.-]+", needed)[0])
    return sorted(found)


def blocks_of(role):
    """{the file that its first line names: text} of the YAML that the role's README shows."""
    page = (PROJECT / "roles" / role / "README.md").read_text()
    return dict(re.findall(r"^```yaml\n# (\S+)[^\n]*\n(.*?)^```", page, re.S | re.M))
