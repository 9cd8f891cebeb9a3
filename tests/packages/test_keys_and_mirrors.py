"""Repositories with an expired or a different key, mirrors that return old lists: nothing unproved
is installed, and each refusal gives its reason."""

from __future__ import annotations

import hashlib
import subprocess

import pytest
from audits import DEADLINE_S, PROJECT
from module_calls import command_of
from repository import build_package
from trial_node import KEY, NODE, SECRET

NAME = "nvidia-driver"
# gpg signs as of that day, with a key that lasts a year.
LONG_AGO = ("--faked-system-time", "20200301T000000!")


@pytest.fixture
def versions(trial, tmp_path):
    """Packages of versions 1 to 3; version 1 is installed on the node, its lists contain 1 and
    2."""
    files = [
        build_package(tmp_path, NAME, version, [f"/usr/share/nvidia/{version}"])
        for version in ("1", "2", "3")
    ]
    trial.offer(*files[:2])
    trial.have(f"{NAME}=1")
    return files


def refused(trial, version, state_id, **options):
    """Why a version was not installed, in one line; the node has its old version."""
    before = trial.installed(NAME)
    answer = trial.change(install={NAME: version}, state_id=state_id, **options)
    assert answer["failed"] and not answer["changed"]
    assert "\n" not in answer["msg"]
    assert SECRET not in str(answer)
    assert trial.installed(NAME) == before
    return answer["msg"]


def assert_comes_and_goes(trial, state_id, warning=""):
    """Version 2 is installed, because lists that were proved contain it; the rollback restores
    1."""
    done = trial.change(install={NAME: "2"}, state_id=state_id)
    assert done["changed"], done
    assert warning in " ".join(done["warnings_of_update"])
    assert bool(warning) == bool(done["warnings_of_update"])
    assert SECRET not in str(done)
    assert trial.installed(NAME) == ["ii 2"]
    assert trial.restore(state_id) == [NAME]
    assert trial.installed(NAME) == ["ii 1"]
    trial.assert_whole()


def preview_by_ansible(trial, version):
    """The preview's output for a person."""
    argv, environment = command_of(
        trial.fleet, NODE, "package_change", True, {"install": {NAME: version}}
    )
    captured = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run(
        trial.fleet.bed.inside(argv, PROJECT),
        env=environment,
        timeout=DEADLINE_S,
        check=False,
        **captured,
    )
    return " ".join(f"{done.stdout} {done.stderr}".split())


@pytest.mark.parametrize(("name", "says"), [("expired", "EXPKEYSIG"), ("swapped", "NO_PUBKEY")])
def test_a_key_that_has_expired_or_is_another_one_brings_nothing_new(trial, versions, name, says):
    at, lasts = (LONG_AGO, "1y") if name == "expired" else ((), "never")
    public, state_id = trial.repository.new_key(name, lasts, *at), trial.begin()
    trial.offer(*versions, key=name, at=at)
    with trial.fleet.nodes[NODE].planted(
        KEY, public if name == "expired" else trial.repository.key
    ):
        why = refused(trial, "3", state_id)
        assert f"{NAME} 3 is not on offer; on offer are: 2, 1" in why
        assert says in why
        if name == "expired":
            assert (
                "[WARNING]: W: An error occurred during the signature verification."
                in preview_by_ansible(trial, "2")
            )
        else:  # a person who controls the mirror, but not the key, can replace files that the lists name
            place, honest = trial.repository.folder / versions[1].name, versions[1].read_bytes()
            place.unlink()  # a link to the file of the honest mirror
            place.write_bytes(honest.replace(b"testbed", b"someone"))
            why = refused(trial, "2", state_id)
            assert "nothing was touched" in why
            assert "Hash Sum mismatch" in why
            place.write_bytes(honest)
        assert_comes_and_goes(trial, state_id, says)


@pytest.mark.nightly
def test_a_mirror_that_has_gone_stale_or_back_in_time(trial, versions):
    state_id = trial.begin()
    trial.offer(*versions, Valid_Until="Sun, 01 Mar 2020 00:00:00 UTC")
    why = refused(trial, "3", state_id)
    assert f"{NAME} 3 is not on offer; on offer are: 2, 1" in why
    assert "is expired" in why
    assert_comes_and_goes(trial, state_id, "is expired")

    # Signed by the right key, and older than the node's lists: an old answer is replayed. apt keeps
    # its lists.
    trial.offer(versions[0], Date="Sun, 01 Mar 2020 00:00:00 UTC")
    why = refused(trial, "2", trial.begin())
    assert "nothing was touched" in why
    assert "404" in why

    # The mirror itself was set back, and its answer is signed today.
    trial.offer(*versions)
    assert trial.change(install={NAME: "2"}, state_id=trial.begin())["changed"]
    trial.offer(versions[0])
    assert not trial.change(install={NAME: ""})["changed"]
    assert "allow_downgrade: true allows it" in refused(trial, "1", trial.begin())
    assert f"{NAME} 3 is not on offer; on offer are: 1" in refused(trial, "3", trial.begin())
    assert trial.installed(NAME) == ["ii 2"]
    trial.assert_whole()


def build(folder, content):
    """Version 1 with one file, and the checksums of its files as Debian's own packages have
    them."""
    file = build_package(folder, NAME, "1", ["/usr/share/nvidia/driver"])
    tree = folder / f"{NAME}-1"
    (tree / "usr/share/nvidia/driver").write_text(content)
    (tree / "DEBIAN/md5sums").write_text(
        f"{hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()} "
        " usr/share/nvidia/driver\n"
    )
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(file)],
        check=True,
        capture_output=True,
    )
    return file


@pytest.mark.nightly
def test_a_version_that_the_mirror_has_built_anew_is_not_taken_for_the_one_that_is_installed(
    trial, tmp_path
):
    newer = build_package(tmp_path, NAME, "2")
    trial.offer(build(tmp_path / "first", "first\n"), newer)
    trial.have(f"{NAME}=1")
    trial.shell("apt-get clean")
    trial.offer(build(tmp_path / "anew", "built anew, and longer\n"), newer)
    state_id = trial.begin()
    done = trial.change(install={NAME: "2"}, state_id=state_id)
    assert done["changed"]
    assert done["repacked"] == [NAME]
    assert trial.restore(state_id) == [NAME]
    assert trial.shell("cat /usr/share/nvidia/driver") == "first\n"
    trial.assert_whole()
