"""A change and a rollback beside other programs that change a node's packages: unattended-upgrades,
packages that ask questions, a /boot that fills up."""

from __future__ import annotations

import json
import subprocess

import audits
import pytest
from archive import ORIGIN
from repository import APT, build_package
from trial_node import HALTS, change_code

NAME, SITE = "nvidia-driver", "site-tool"
UNATTENDED = (
    f'Unattended-Upgrade::Origins-Pattern {{ "origin={ORIGIN}";'
    f' }};\nUnattended-Upgrade::Package-Blacklist {{ "{NAME}"; }};\n'
)


@pytest.fixture
def upgrading(trial, tmp_path):
    """A node whose unattended-upgrades may upgrade the site's tool; the script of every newer
    package waits until /run/go exists."""
    versions = ("1", "2", "3")
    files = [
        build_package(tmp_path, name, version, preinst="" if version == "1" else HALTS)
        for name in (NAME, SITE)
        for version in versions
    ]
    trial.fleet.plant("deb12", "/etc/apt/apt.conf.d/60trial", UNATTENDED)
    trial.offer(*[path for path in files if "_3" not in path.name])
    trial.have(f"{NAME}=1", f"{SITE}=1")
    trial.fleet.undo.callback(
        trial.shell, "touch /run/go; systemctl stop upgrading; rm -f /run/go /run/reached"
    )
    return trial, files


def start_upgrade(trial):
    """unattended-upgrades holds dpkg's lock, in the middle of a package."""
    trial.shell(
        "rm -f /run/go /run/reached; systemd-run --quiet --collect --unit=upgrading"
        " unattended-upgrade --verbose"
    )
    trial.await_file("/run/reached")


def end_upgrade(trial):
    """unattended-upgrades has ended by itself."""
    trial.shell("touch /run/go")
    audits.wait_until(
        lambda: trial.shell("systemctl is-active upgrading || :").strip() in ("inactive", "failed"),
        "unattended-upgrades has ended",
    )


def test_unattended_upgrades_are_waited_for_and_named_and_wait_themselves(upgrading):
    trial, files = upgrading
    start_upgrade(trial)
    state_id = trial.begin()
    wanted = {"install": {NAME: "2"}, "state_id": state_id, "lock_timeout_s": 1}
    for check in (True, False):
        refused = trial.change(check=check, **wanted)
        assert not refused["changed"]
        assert "/var/lib/dpkg/lock-frontend (pid " in refused["msg"]
        assert "unattended-upgrade" in refused["msg"]
    with trial.under_way(change_code({**wanted, "lock_timeout_s": audits.DEADLINE_S})) as waiting:
        end_upgrade(trial)
        output, errors = waiting.communicate(timeout=audits.DEADLINE_S)
    assert json.loads(output.splitlines()[-1])["changed"], (output, errors)
    assert trial.installed(NAME, SITE) == ["ii 2", "ii 2"]

    # The reverse case: the change is in the middle of a package.
    trial.offer(*files)
    trial.shell(f"{APT} update; rm -f /run/go /run/reached")
    with trial.under_way(change_code({**wanted, "install": {NAME: "3"}})) as at_work:
        trial.await_file("/run/reached")
        output = trial.shell("unattended-upgrade --verbose 2>&1 || :")
        assert trial.installed(SITE) == ["ii 2"], output
        trial.shell("touch /run/go")
        assert json.loads(at_work.communicate(timeout=audits.DEADLINE_S)[0].splitlines()[-1])[
            "changed"
        ]

    start_upgrade(trial)
    why = trial.restore(state_id, lock_timeout_s=1)
    assert "unattended-upgrade" in why
    assert "\n" not in why
    assert trial.installed(NAME) == ["ii 3"]
    end_upgrade(trial)
    assert trial.restore(state_id) == [NAME]
    assert trial.installed(NAME, SITE) == ["ii 1", "ii 3"]
    trial.assert_whole()


# As a driver's package asks for Secure Boot's password: no default, no continuation without it, and
# it tries the terminal first.
TEMPLATES = (
    "Template: asking/secure-boot\nType: password\nDescription: Password for MOK management\n A"
    " password.\n"
)
CONFIG = (
    "#!/bin/sh\n. /usr/share/debconf/confmodule\ndb_input critical asking/secure-boot || :\ndb_go"
    " || :\n"
)
INSISTS = """\
. /usr/share/debconf/confmodule
db_get asking/secure-boot
[ -n "$RET" ] && exit 0
read answer </dev/tty || echo "dpkg: error: no terminal" >&2
echo "dpkg: error: no password was given" >&2
exit 1
"""


def package_that_asks(folder, version):
    """A package with a debconf question that is asked before it is unpacked, like real ones."""
    built = build_package(folder, "asking", version, postinst=INSISTS)
    tree = folder / f"asking-{version}"
    (tree / "DEBIAN/templates").write_text(TEMPLATES)
    (tree / "DEBIAN/config").write_text(CONFIG)
    (tree / "DEBIAN/config").chmod(0o755)
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(built)],
        check=True,
        capture_output=True,
    )
    return built


@pytest.mark.nightly
def test_a_package_that_insists_on_an_answer_fails_is_finished_once_it_is_given_and_comes_back(
    trial, tmp_path
):
    trial.offer(build_package(tmp_path, "asking", "1"), package_that_asks(tmp_path, "2"))
    trial.fleet.undo.callback(
        trial.shell, "echo PURGE | debconf-communicate asking >/dev/null 2>&1 || :"
    )
    trial.have("asking=1")
    wanted = {"install": {"asking": "2"}, "state_id": trial.begin()}
    failed = trial.change(**wanted)
    assert failed["stopped_at"] == "applying"
    assert all(
        message in failed["msg"]
        for message in ("asking is not configured", "no terminal", "no password was given")
    ), failed["msg"]
    assert trial.saved(wanted["state_id"])["status"] == "failed"
    trial.shell("echo asking asking/secure-boot password abc | debconf-set-selections")
    finished = trial.change(**wanted, repair=True)
    assert finished["changed"], finished
    assert trial.installed("asking") == ["ii 2"]
    assert trial.restore(wanted["state_id"]) == ["asking"]
    assert trial.installed("asking") == ["ii 1"]
    trial.assert_whole()


KERNEL = "linux-image-6.1.0-99-amd64"


@pytest.mark.nightly
def test_a_boot_that_fills_up_while_the_ramdisk_is_made_can_be_taken_back(trial, tmp_path):
    """The room that is needed in /boot is estimated in advance; a ramdisk that became larger fills
    it anyway."""
    ramdisk = "dd if=/dev/zero of=/boot/initrd.img-6.1.0-99-amd64 bs=1M count=99999"
    removes = 'case "$1" in remove|purge) rm -f /boot/initrd.img-6.1.0-99-amd64 ;; esac'
    trial.offer(
        build_package(
            tmp_path,
            KERNEL,
            "6.1.99-1",
            ["/boot/vmlinuz-6.1.0-99-amd64"],
            postinst=f"{ramdisk} || exit 1",
            postrm=removes,
        )
    )
    trial.have()
    trial.fleet.shell("deb12", "mount -t tmpfs -o size=8M small /boot", undo="umount /boot")
    trial.shell(
        "for name in vmlinuz initrd.img; do head -c 200000 /dev/zero >/boot/$name-6.1.0-50-amd64;"
        " done"
    )
    before, state_id = trial.shell("ls -l /boot"), trial.begin()
    failed = trial.change(install={KERNEL: ""}, state_id=state_id, boot_free_min_mib=1)
    assert failed["stopped_at"] == "applying", failed
    assert "No space left on device" in failed["msg"]
    assert f"{KERNEL} is not configured" in failed["msg"]
    assert trial.restore(state_id) == [KERNEL]
    assert trial.shell("ls -l /boot") == before
    trial.assert_whole()
