"""A virtual environment with the wheel of this checkout, for tests of what an installation
gives. Its dependencies are kept in .cache between runs."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 600


@dataclass(frozen=True)
class Installed:
    """program: the installed `unhang`; folder: its users' current folder and home."""

    program: Path
    folder: Path

    @property
    def home(self):
        """The files of the wheel besides Python packages."""
        return next(self.program.parent.parent.glob("lib/python3*/site-packages/unhang/home"))

    def environment(self):
        """Nothing from the caller's environment: no checkout, no setting, no program of another
        environment."""
        return {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "XDG_STATE_HOME": str(self.folder / "state"),
        }

    def __call__(self, *arguments, **options):
        """A finished `unhang`, started in the folder: returncode, stdout, stderr."""
        return finished(
            [self.program, *arguments], env=self.environment(), **{"cwd": self.folder, **options}
        )


def finished(command, **options):
    """A finished program, its output as text."""
    given = {
        "capture_output": True,
        "text": True,
        "stdin": subprocess.DEVNULL,
        "timeout": DEADLINE_S,
        **options,
    }
    return subprocess.run(list(map(str, command)), check=False, **given)


def build(target, source, folder):
    """The one file that the project's own build backend writes into a folder for `target` ("wheel"
    or "sdist") of a source tree."""
    done = finished(
        [sys.executable, "-P", "-m", "hatchling", "build", "-t", target, "-d", folder], cwd=source
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = Path(folder).iterdir()
    return built


def contents(wheel):
    """{path: bytes} of a wheel, without its RECORD file, which lists the others."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")
        }


def with_dependencies():
    """A virtual environment with the packages of requirements.txt and nothing of unhang, made once
    for these versions."""
    wanted = (
        (PROJECT / "requirements.txt").read_bytes()
        + sys.version.encode()
        + os.fsencode(sys.base_prefix)
    )
    place = PROJECT / ".cache" / "wheel" / hashlib.sha256(wanted).hexdigest()[:12]
    if not (place / ".ready").exists():
        for command in (
            [sys.executable, "-m", "venv", "--clear", "--without-pip", place],
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                place / "bin" / "python",
                "install",
                "--quiet",
                "--require-hashes",
                "-r",
                PROJECT / "requirements.txt",
            ],
        ):
            done = finished(command)
            assert done.returncode == 0, done.stderr
        (place / ".ready").touch()
    return place


def install(wheel, folder):
    """Installs the wheel in that environment, in place of an earlier one; pip itself checks that
    its dependencies are the required ones."""
    place = with_dependencies()
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python"]
    for argv in (
        ["install", "--quiet", "--no-index", "--no-deps", "--force-reinstall", wheel],
        ["check"],
    ):
        done = finished([*pip, *argv])
        assert done.returncode == 0, done.stdout + done.stderr
    return Installed(place / "bin" / "unhang", folder)
