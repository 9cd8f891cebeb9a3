"""Packages of rpm that carry the driver's real names, and repositories of them, flat or with module
streams, built here in seconds."""

from __future__ import annotations

import shutil
import subprocess

RELEASE = "1.el9"
SPEC = """\
Name: {name}
Epoch: 3
Version: {version}
Release: {release}
Summary: x
License: x
BuildArch: noarch
{fields}
%description
x
{more}
%files
{files}
"""
# modulemd 2 and modulemd-defaults 1 (libmodulemd's yaml_specs)
STREAM = """\
---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: {stream}
  version: 20261120
  context: '0abc'
  arch: x86_64
  summary: x
  description: x
  license:
    module: [MIT]
  profiles:
    default:
      rpms: [nvidia-driver]
  artifacts:
    rpms:
{artifacts}
...
"""
DEFAULT = (
    "---\ndocument: modulemd-defaults\nversion: 1\ndata:\n  module: nvidia-driver\n  stream:"
    " {stream}\n...\n"
)
DEADLINE_S = 300


def full(version):
    """3:580.95.05-1.el9 for 580.95.05, the form that package_offers uses."""
    return f"3:{version}-{RELEASE}"


def build(folder, name, version, fields="", more="", files=""):
    """Builds a package into folder/repository. fields: lines of the preamble, more: sections,
    files: of %files."""
    spec = folder / f"{name}-{version}.spec"
    spec.write_text(
        SPEC.format(
            name=name, version=version, release=RELEASE, fields=fields, more=more, files=files
        )
    )
    defines = [
        "--define",
        f"_topdir {folder}/build",
        "--define",
        f"_dbpath {folder}/build/db",
        "--define",
        "_build_id_links none",
    ]
    subprocess.run(
        ["rpmbuild", "-bb", "--quiet", *defines, str(spec)],
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    (folder / "repository").mkdir(exist_ok=True)
    for built in (folder / "build").rglob("*.rpm"):
        built.rename(folder / "repository" / built.name)


def index_flat(repository):
    """Makes the folder a repository without modules, whatever it was before."""
    shutil.rmtree(repository / "repodata", ignore_errors=True)
    subprocess.run(
        ["createrepo_c", "-q", str(repository)], check=True, capture_output=True, timeout=DEADLINE_S
    )


def index(folder, streams=None, default=None):
    """Makes folder/repository a repository. streams: {stream: [(name, version)]}, none for a flat
    one; default: one of them."""
    repository = folder / "repository"
    index_flat(repository)
    if streams:
        texts = [
            STREAM.format(
                stream=stream,
                artifacts="\n".join(
                    f"    - {name}-{full(version)}.noarch" for name, version in rows
                ),
            )
            for stream, rows in streams.items()
        ]
        (folder / "modules.yaml").write_text("".join(texts) + DEFAULT.format(stream=default))
        command = [
            "modifyrepo_c",
            "--mdtype=modules",
            str(folder / "modules.yaml"),
            str(repository / "repodata"),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    return repository


def make_rpm_node(node, repository):
    """For Testbed's prepare: dnf uses only this repository, from the node's own disk."""
    node.write("/etc/rpm/macros", "%_dbpath /var/lib/rpm\n")
    node.write(
        "/etc/yum.repos.d/own.repo", "[own]\nname=own\nbaseurl=file:///srv/repository\ngpgcheck=0\n"
    )
    node.write("/etc/dnf/vars/releasever", "9\n")
    # the plugin that Debian installs would index packages of its own
    node.write("/etc/dnf/plugins/local.conf", "[main]\nenabled = 0\n")
    serve(node, repository)


def serve(node, repository):
    """Makes this one the node's repository."""
    for path in sorted(repository.rglob("*")):
        if path.is_file():
            node.write(f"/srv/repository/{path.relative_to(repository)}", path.read_bytes())


def begin_rpm(node):
    """Removes Debian's own database: from here on the node's packages are rpm's."""
    node.shell("mv /var/lib/dpkg/status /srv/status; rpm --initdb")


def state_of(node):
    """Everything that a read-only call could have changed but must not; dnf takes its locks, and
    opens its history, even for such a call."""
    # The lock's counter rises whenever the node is locked, and is no change.
    kept = "-not -name '*lock*' -not -name '*-shm' -not -path /var/lib/unhang/fencing.json"
    files = (
        f"find /etc /var/lib /var/cache/dnf /var/tmp -type f {kept} -exec sha256sum {{}} + |"
        " sort -k2"
    )
    return node.shell(files).splitlines()
