"""Debian's current packages, fetched once through this machine's own apt into .cache and served to
test nodes as one signed flat repository.

Versions are read from the archive's index, so that only existing ones are requested. A set is
resolved against the node's own list of packages, and only packages that the node lacks are fetched.
Files that are in the folder already are not fetched again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

KEY = "[arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
COMPONENTS = "main contrib non-free non-free-firmware"
DEADLINE_S = 900
ORIGIN = "unhang-test"
_INST = re.compile(r"^Inst (\S+) (?:\[[^\]]*\] )?\((\S+) .*\[(\w+)\]\)", re.M)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A set of packages. requests: arguments of apt-get install; pins: {source: version}."""

    requests: tuple
    pins: tuple = ()


@contextlib.contextmanager
def alone(folder):
    """Locks the folder, so that no other session fetches into it or reads its checksums
    meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def mirrors():
    """(archive, security updates): the mirrors from which this machine's own apt gets Debian's
    packages."""
    output = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    known = sorted(
        uri
        for uri in set(output.split())
        if uri.rstrip("/").endswith(("/debian", "/debian-security"))
    )
    main = [uri for uri in known if uri.rstrip("/").endswith("/debian")]
    security = [uri for uri in known if uri not in main]
    assert main, "expected Debian's archive among this machine's apt sources; run this on Debian"
    assert security, "expected Debian's security archive among this machine's apt sources"
    return main[0], security[0]


class Archive:
    """One release, as apt on this machine sees it: lists and fetched packages are in `folder`,
    installed packages in the file `status`."""

    def __init__(self, folder, release, status, backports=False):
        self.folder, self.release, self.status = Path(folder), release, Path(status)
        for inner in (
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
        ):
            (self.folder / inner).mkdir(parents=True, exist_ok=True)
        for proxy in Path("/etc/apt/apt.conf.d").glob("*prox*"):
            shutil.copy(proxy, self.folder / "etc/apt/apt.conf.d")
        main, security = mirrors()
        lines = [
            f"deb {KEY} {main} {release} {COMPONENTS}",
            f"deb {KEY} {security} {release}-security {COMPONENTS}",
        ]
        lines += [f"deb {KEY} {main} {release}-backports {COMPONENTS}"] if backports else []
        (self.folder / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
        with alone(self.folder):
            self.apt("apt-get", "update")

    def apt(self, program, *arguments, check=True):
        """A program of apt over this release."""
        settings = [
            f"Dir={self.folder}",
            f"Dir::State::status={self.status}",
            "Acquire::Languages=none",
            "APT::Architecture=amd64",
        ]
        options = [word for setting in settings for word in ("-o", setting)]
        done = subprocess.run(
            [program, "-q", *options, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        assert not check or done.returncode == 0, (
            f"{program} {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
        return done.stdout

    @functools.cache  # noqa: B019 - one archive lives as long as the session
    def versions(self, package):
        """Versions on offer, newest first."""
        lines = self.apt("apt-cache", "madison", package, check=False).splitlines()
        return [line.split("|")[1].strip() for line in lines if line.endswith("Packages")]

    def version(self, package, beginning):
        """The newest version with this beginning."""
        found = [version for version in self.versions(package) if version.startswith(beginning)]
        assert found, (
            f"{package} {beginning}* is not offered any more ({', '.join(self.versions(package))}):"
            " choose another transition"
        )
        return found[0]

    def fetch(self, wanted):
        """Files of all packages that the set installs on the node, fetched if they are missing."""
        with alone(self.folder):
            return self._fetch(wanted)

    def _fetch(self, wanted):
        pins = [
            f"Package: src:{source}\nPin: version {version}\nPin-Priority: 1001\n"
            for source, version in wanted.pins
        ]
        (self.folder / "etc/apt/preferences.d/set").write_text("\n".join(pins))
        install = ["install", "--no-install-recommends", "-y", *wanted.requests]
        output = self.apt("apt-get", "--simulate", *install)
        pool = self.folder / "var/cache/apt/archives"
        files = [
            pool / "{}_{}_{}.deb".format(name.split(":")[0], version.replace(":", "%3a"), arch)
            for name, version, arch in _INST.findall(output)
        ]
        if not all(path.is_file() for path in files):
            self.apt("apt-get", "--download-only", *install)
        missing = [path.name for path in files if not path.is_file()]
        assert not missing, f"expected these to be fetched: {missing}"
        return files


class Repository:
    """A signed flat repository in a folder. files: packages, linked into it; database: the cache of
    apt-ftparchive."""

    def __init__(self, folder, files, database):
        self.folder, self.home, self.database = (
            Path(folder),
            Path(folder).with_suffix(".gnupg"),
            database,
        )
        self.folder.mkdir(parents=True)
        self.home.mkdir(mode=0o700)
        for path in files:
            self.add(path)
        self.key = self.new_key(ORIGIN)
        self.index()

    def new_key(self, name, lasts="never", *at):
        """A new key for signing, its public part as text. lasts: its validity as gpg takes it; at:
        options of gpg, such as another time."""
        self._gpg(*at, "--quick-generate-key", "--passphrase", "", name, "ed25519", "sign", lasts)
        return self._gpg(*at, "--armor", "--export", name)

    def add(self, path):
        """Adds another package; index() must follow."""
        place = self.folder / path.name
        if not place.exists():
            try:
                os.link(path, place)
            except OSError:
                shutil.copy(path, place)

    def remove(self, pattern):
        """Packages that the mirror drops; index() must follow."""
        for path in self.folder.glob(pattern):
            path.unlink()

    def index(self, key=ORIGIN, at=(), **fields):
        """Writes Packages, Release and its signature again. key: that signs; at: options of gpg
        (another time); fields: lines of Release to set."""
        for old in ("Packages", "Release", "InRelease"):
            (self.folder / old).unlink(missing_ok=True)
        # Checksums that were computed before are kept: a gigabyte takes a minute. One kind of
        # checksum is enough.
        sums = [
            word
            for left_out in ("MD5", "SHA1", "SHA512", "Contents")
            for word in ("-o", f"APT::FTPArchive::{left_out}=false")
        ]
        with alone(self.database.parent):
            self._write(
                "Packages", ["apt-ftparchive", "--db", str(self.database), *sums, "packages", "."]
            )
        # outside: else its own unfinished text would be listed in it
        release = self.folder.with_suffix(".release")
        options = [
            "-o",
            f"APT::FTPArchive::Release::Origin={ORIGIN}",
            "-o",
            f"APT::FTPArchive::Release::Label={ORIGIN}",
        ]
        with release.open("w") as output:
            subprocess.run(
                ["apt-ftparchive", *options, "release", "."],
                cwd=self.folder,
                stdout=output,
                check=True,
                timeout=DEADLINE_S,
            )
        for name, value in fields.items():
            kept = [
                line
                for line in release.read_text().splitlines()
                if not line.startswith(f"{name.replace('_', '-')}: ")
            ]
            release.write_text("\n".join([f"{name.replace('_', '-')}: {value}", *kept]) + "\n")
        (self.folder / "InRelease").write_text(
            self._gpg(*at, "--local-user", key, "--clearsign", "--output", "-", str(release))
        )

    def spoil_signature(self):
        """Changes signed content after it was signed."""
        place = self.folder / "InRelease"
        place.write_text(place.read_text().replace(f"Label: {ORIGIN}", "Label: somebody-else"))

    def _write(self, name, command):
        with (self.folder / name).open("w") as output:
            subprocess.run(
                command,
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.PIPE,
                check=True,
                timeout=DEADLINE_S,
            )

    def _gpg(self, *arguments):
        # In a process namespace of its own, with which the agent that gpg starts ends too, also
        # when this run is killed.
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--"]
        command = [
            "gpg",
            "--homedir",
            str(self.home),
            "--batch",
            "--yes",
            "--pinentry-mode",
            "loopback",
            *arguments,
        ]
        return subprocess.run(
            [*alone, *command], capture_output=True, text=True, check=True, timeout=DEADLINE_S
        ).stdout
