"""`make release`: files that can be uploaded as they are, and the wheel as a person without a
checkout installs it, by pipx and by uv."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from installed_wheel import PROJECT, Installed, finished

from unhang import __version__

NAMES = {
    f"unhang-{__version__}-py3-none-any.whl",
    f"unhang-{__version__}.tar.gz",
    f"unhang-ops-{__version__}.tar.gz",
    "unhang-collect.pyz",
    "unhang-inspect.pyz",
    "unhang-quick.pyz",
    "unhang.cdx.json",
}
LOG = PROJECT / "tests" / "fixtures" / "diagnose" / "acs_iommu" / "acsctl-and-hang.log"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """(finished `make release`, its dist) in a copy of the checkout, so that what lies in the
    checkout's own dist stays."""
    tree = tmp_path_factory.mktemp("release") / "unhang"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, tracked):
        if not name.startswith("tests/") or name in ("tests/tests.mk", "tests/nightly"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, tree / name, follow_symlinks=False)
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "what is released"]):
        subprocess.run(["git", *identity, *words], cwd=tree, check=True)
    (tree / "dist").mkdir()
    # what an earlier release left is not uploaded again
    (tree / "dist" / "unhang-0.0.1-py3-none-any.whl").touch()
    venv = PROJECT / ".venv"
    # the copy is never installed in place of the checkout
    stamps = [
        part for name in (".ready", ".ready-test", ".ready-dev") for part in ("-o", venv / name)
    ]
    key = tree.with_name("key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    command = ["make", *stamps, "release", f"VENV={venv}", "NIGHTLY=help"]
    unsigned = finished(command, cwd=tree)
    assert (
        unsigned.returncode,
        "the ssh key that signs a release is missing" in unsigned.stderr,
    ) == (2, True), unsigned.stderr
    command.append(f"SIGNING_KEY={key}")
    refused = finished(command, cwd=tree)
    assert (refused.returncode, "docs/testing.md has no pass of `make help`" in refused.stderr) == (
        2,
        True,
    ), refused.stderr
    # in place of the tests, which take hours
    subprocess.run(["sh", "tests/nightly", "run", "help"], cwd=tree, check=True)
    done = finished(command, cwd=tree)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done, tree / "dist"


@pytest.fixture(scope="module")
def installers(tmp_path_factory):
    """The folder of programs of an environment that has pipx and uv."""
    place = tmp_path_factory.mktemp("installers")
    for command in (
        [sys.executable, "-m", "venv", place],
        [place / "bin" / "python", "-m", "pip", "install", "--quiet", "pipx", "uv"],
    ):
        done = finished(command)
        assert done.returncode == 0, done.stderr
    return place / "bin"


@pytest.fixture(scope="module", params=["pipx install", "uv tool install"])
def unhang(request, release, installers, tmp_path_factory):
    """The program that a person has after `pipx install FILE` or `uv tool install FILE`, in a
    folder with nothing in it, and a function that types a line which installs."""
    home = tmp_path_factory.mktemp("home")
    names = {
        "PIPX_HOME": "pipx",
        "PIPX_BIN_DIR": "bin",
        "UV_TOOL_DIR": "uv",
        "UV_TOOL_BIN_DIR": "bin",
        "UV_CACHE_DIR": "cache",
    }
    program, *words = request.param.split()
    chosen = ("--python", sys.executable)
    environment = {
        **os.environ,
        "HOME": str(home),
        **{name: str(home / folder) for name, folder in names.items()},
    }
    [wheel] = release[1].glob("*.whl")
    (home / "empty").mkdir()

    def installed(argv):
        path = {"PATH": f"{installers}:/usr/bin:/bin"}
        done = finished(argv, env=environment | path, cwd=home / "empty")
        assert done.returncode == 0, done.stdout + done.stderr

    installed([installers / program, *words, "--force", *chosen, wheel])
    return Installed(home / "bin" / "unhang", home / "empty"), installed


def test_a_release_is_these_files_and_their_checksums(release):
    _done, dist = release
    assert {path.name for path in dist.iterdir()} == NAMES | {"SHA256SUMS", "SHA256SUMS.sig"}
    sums = dict(
        reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines()
    )
    assert sums == {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in NAMES}


def test_the_checksums_are_signed_and_the_documented_check_refuses_another_key(release, tmp_path):
    _done, dist = release
    public = (dist.parents[1] / "key.pub").read_text()
    page = (PROJECT / "docs" / "install.md").read_text()
    [check] = [line for line in page.splitlines() if line.startswith("ssh-keygen -Y verify")]
    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
    for signer, right in ((public, True), (stranger.with_suffix(".pub").read_text(), False)):
        (dist.parent / "signers").write_text(f"unhang {signer}")
        done = subprocess.run(
            ["sh", "-c", check.replace("-f signers", "-f ../signers")],
            cwd=dist,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0, "Good" in done.stdout) == (right, right), done.stderr


def test_twine_finds_nothing_to_say_about_what_it_would_upload(release):
    done, dist = release
    checked = [line for line in done.stdout.splitlines() if line.startswith("Checking ")]
    assert len(checked) == 2 and all("PASSED" in line for line in checked), checked
    assert "PASSED with warnings" not in done.stdout
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        assert (
            f"\nVersion: {__version__}\n"
            in wheel.read(f"unhang-{__version__}.dist-info/METADATA").decode()
        )
    with tarfile.open(next(dist.glob("unhang-[0-9]*.tar.gz"))) as archive:
        assert f"unhang-{__version__}/README.md" in archive.getnames()
    component = json.loads((dist / "unhang.cdx.json").read_text())["metadata"]["component"]
    assert (component["name"], component["version"]) == ("unhang", __version__)


@pytest.mark.parametrize("name", sorted(one for one in NAMES if one.endswith(".pyz")))
def test_each_program_of_one_file_starts(release, name, tmp_path):
    done = finished([sys.executable, "-I", release[1] / name, "--help"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith("usage: ")


def test_a_person_with_a_log_has_the_cause(unhang):
    unhang, _type_line = unhang
    (unhang.folder / "job.log").write_bytes(LOG.read_bytes())
    done = unhang("diagnose", "job.log")
    assert done.returncode == 1, done.stderr
    assert "ACS" in done.stdout


def test_a_person_without_gpus_sees_the_demo_and_opens_its_report(unhang):
    unhang, type_line = unhang
    lacks = unhang("demo")
    line = shlex.split(lacks.stderr.partition("; next: ")[2])
    assert (lacks.returncode, line[-1][-11:]) == (2, ".whl[fleet]"), lacks.stderr
    type_line(line)
    done = unhang("demo")
    assert done.returncode == 1, done.stderr[-3000:]
    assert "read by" not in done.stderr  # the README shows all that is printed
    assert (
        "23 nodes: 3 critical" in done.stdout and "[driver-545-23-08-p2p-deadlock]" in done.stdout
    )
    ticket = unhang("report", "--host", "gpu007", "-o", "ticket")
    assert ticket.returncode == 1, ticket.stderr
    assert ticket.stdout.startswith("# Hardware fault of gpu007\n")
