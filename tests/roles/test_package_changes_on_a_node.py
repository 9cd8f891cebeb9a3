"""The module package_change on a booted node: real apt and dpkg, a repository of small packages,
real systemd around them; and failures in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess

import audits
import pytest
from module_calls import call_module, code_call, command_of, run_code
from repository import APT, FOLDER, build_package, packages_index, serve
from role_plays import state_of

NODE = "gpu001"
OLD, NEW = "535.261.03-1", "535.309.01-1"
PIN = "/etc/apt/preferences.d/unhang-driver"
NAMES = ("nvidia-driver", "libnvidia-ml1")
# A script that waits until it may continue, so that a test can interfere meanwhile.
HALTS = "[ -e /run/go ] || { touch /run/reached; while [ ! -e /run/go ]; do sleep 0.1; done; }"


def driver(folder, version, **scripts):
    """The packages of a driver: the driver depends on the library of its own version."""
    library = build_package(
        folder,
        "libnvidia-ml1",
        version,
        ["/usr/lib/nvidia/libnvidia-ml.so.1", "/etc/nvidia/settings -> /usr/lib/nvidia"],
    )
    return [
        library,
        build_package(
            folder,
            "nvidia-driver",
            version,
            [f"/usr/share/nvidia/{version}"],
            f"Depends: libnvidia-ml1 (= {version})\n",
            **scripts,
        ),
    ]


def equip(fleet, folder, *more, **scripts):
    """The old driver on the node, whose repository has both versions; scripts: of the new one."""
    files = [*driver(folder, OLD), *driver(folder, NEW, **scripts), *more]
    serve(fleet, NODE, files)
    # Removes what a test left half done, because all tests share the node.
    cleaning = (
        f"systemctl kill --signal=KILL unhang-packages; rm -rf {PIN} /run/go /run/reached; dpkg"
        f" --force-all --purge {' '.join(NAMES)}"
    )
    fleet.undo.callback(fleet.shell, NODE, f"({cleaning}) 2>&1; :")
    fleet.shell(NODE, f"{APT} install nvidia-driver={OLD} libnvidia-ml1={OLD}")
    fleet.shell(NODE, "rm -f /run/go /run/reached")
    return files


def begun(fleet):
    """Id of a saved state."""
    code = (
        "from unhang_node.change.journal.saved_states import begin_state;"
        " print(json.dumps(begin_state('/', 'gpu_driver', 'r1')[0]['id']))"
    )
    return run_code(fleet, NODE, code)


def request(version, **options):
    """The request of the driver's role."""
    stanzas = [{"package": "src:nvidia-driver", "version": version}]
    more = {"update_cache": False, "root_free_min_mib": 20, **options}
    return {
        "install": {"nvidia-driver": version},
        "expect": {"libnvidia-ml1": version},
        "pin": {"file": PIN, "stanzas": stanzas},
        **more,
    }


def change_code(options, check=False):
    """What the module package_change does, as a line of Python."""
    return (
        "from unhang_node.change.package.answer import change_packages;"
        f" print(json.dumps(change_packages({options!r}, {check})))"
    )


def change(fleet, check=False, **options):
    """A result of package_change."""
    return run_code(fleet, NODE, change_code(options, check))


def restore(fleet, state_id):
    """Names of the packages that a rollback restored."""
    code = (
        "from unhang_node.change.rollback.restore import apply_restore, plan_restore; plan ="
        f" plan_restore('/', '{state_id}'); "
    )
    return run_code(
        fleet,
        NODE,
        code + "print(json.dumps([row['name'] for row in apply_restore('/', plan, 20).packages]))",
    )


def versions(fleet):
    """Versions of the driver's packages that are completely installed."""
    output = fleet.shell(
        NODE, "dpkg-query -W -f '${Version} ${db:Status-Abbrev}\\n' " + " ".join(NAMES)
    )
    return [line.split()[0] for line in output.splitlines() if line.split()[1] == "ii"]


@contextlib.contextmanager
def halted(fleet, argv, environment=None):
    """A call of package_change that has reached the script that waits, as a process."""
    streams = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
    with subprocess.Popen(
        fleet.bed.inside(argv, audits.PROJECT), env=environment, start_new_session=True, **streams
    ) as process:
        try:
            audits.wait_until(
                lambda: (
                    fleet.nodes[NODE].place("/run/reached").exists() or process.poll() is not None
                ),
                "the package's script is reached",
            )
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def saved_packages(fleet, state_id):
    """packages.json of a state."""
    return json.loads(fleet.shell(NODE, f"cat /var/lib/unhang/states/{state_id}/packages.json"))


def test_a_driver_goes_up_with_its_library_and_comes_back(fleet, tmp_path):
    equip(fleet, tmp_path)
    before = state_of(fleet, NODE)
    foretold = call_module(
        fleet, NODE, "package_change", check=True, **request(NEW, update_cache=True)
    )
    assert state_of(fleet, NODE) == before
    state_id = begun(fleet)
    done = call_module(
        fleet, NODE, "package_change", state_id=state_id, **request(NEW, update_cache=True)
    )
    assert done["changed"]
    assert done["changes"] == foretold["changes"]
    assert [(row["name"], row["action"], row["after"]) for row in done["changes"]] == [
        ("libnvidia-ml1", "upgrade", NEW),
        ("nvidia-driver", "upgrade", NEW),
    ]
    assert versions(fleet) == [NEW, NEW]
    again = state_of(fleet, NODE)
    assert not change(fleet, state_id=state_id, **request(NEW))["changed"]
    assert state_of(fleet, NODE) == again
    assert sorted(restore(fleet, state_id)) == sorted(NAMES)
    assert versions(fleet) == [OLD, OLD]
    assert not fleet.nodes[NODE].place(PIN).exists()
    assert restore(fleet, state_id) == []


def test_a_preview_leaves_no_trace(fleet, tmp_path):
    equip(fleet, tmp_path)
    fleet.shell(
        NODE,
        f"{APT} --simulate install nvidia-driver={NEW} libnvidia-ml1={NEW}; sleep 1; touch"
        " /run/stamp; sleep 1",
    )
    assert change(fleet, check=True, **request(NEW, update_cache=True))["changes"]
    call_module(fleet, NODE, "package_offers", names=["nvidia-*"], update_cache=True)
    written = fleet.shell(
        NODE, "find /etc /usr /var /boot /opt /root -xdev -newer /run/stamp -type f"
    ).splitlines()
    assert [
        path
        for path in written
        if not path.startswith(
            ("/var/log/journal", "/var/log/wtmp", "/var/log/lastlog", "/root/.ansible")
        )
    ] == []


def test_a_preview_names_the_file_by_which_the_site_pins_another_version(fleet, tmp_path):
    equip(fleet, tmp_path)
    site = fleet.nodes[NODE].place("/etc/apt/preferences.d/site")
    site.write_text(f"Package: libnvidia-ml1\nPin: version {OLD}\nPin-Priority: 1002\n")
    found = change(fleet, check=True, **request(NEW))
    site.unlink()
    assert found["msg"].startswith("refused: /etc/apt/preferences.d/site pins other versions: ")


def test_what_is_not_asked_for_is_refused_with_what_is_on_offer(fleet, tmp_path):
    rival = build_package(tmp_path, "nvidia-tesla-driver", "1", fields="Conflicts: nvidia-driver\n")
    equip(
        fleet,
        tmp_path,
        rival,
        build_package(
            tmp_path, "nvidia-driver-525", "525.1-1", fields=f"Depends: nvidia-driver (= {NEW})\n"
        ),
    )
    state_id = begun(fleet)
    before = state_of(fleet, NODE)

    def refused(**options):
        answer = change(
            fleet, state_id=state_id, update_cache=False, root_free_min_mib=20, **options
        )
        return " ".join(answer["refused"])

    assert f"nvidia-driver 525.147.05-1 is not on offer; on offer are: {NEW}, {OLD}" in refused(
        install={"nvidia-driver": "525.147.05-1"}
    )
    assert "no repository of this node has a package" in refused(install={"nvidia-driver-470": ""})
    assert f"nvidia-driver {OLD} would be removed" in refused(install={"nvidia-tesla-driver": ""})
    # The package's name says 525, but another driver is installed.
    assert f"libnvidia-ml1 would be {NEW} afterwards, not 525.*" in refused(
        install={"nvidia-driver-525": ""}, expect={"libnvidia-ml1": "525.*"}
    )
    assert state_of(fleet, NODE) == before
    fleet.shell(NODE, "apt-mark hold libnvidia-ml1", undo="apt-mark unhold libnvidia-ml1")
    assert "libnvidia-ml1 is on hold, and not by unhang" in refused(install={"nvidia-driver": NEW})


def test_a_package_whose_script_fails_can_be_taken_back(fleet, tmp_path):
    equip(fleet, tmp_path, postinst="echo no such device >&2; exit 1")
    state_id = begun(fleet)
    failed = change(fleet, state_id=state_id, **request(NEW))
    assert failed["failed"]
    assert failed["stopped_at"] == "applying"
    assert "nvidia-driver is not configured" in failed["msg"]
    assert any("nvidia-driver" in line for line in failed["audit"])
    assert saved_packages(fleet, state_id)["status"] == "failed"
    again = change(fleet, state_id=state_id, **request(NEW))
    assert "dpkg --configure -a" in again["msg"]
    assert sorted(restore(fleet, state_id)) == sorted(NAMES)
    assert versions(fleet) == [OLD, OLD]
    assert fleet.shell(NODE, "dpkg --audit") == ""


def test_a_dpkg_that_was_killed_is_found_and_repaired(fleet, tmp_path):
    equip(fleet, tmp_path, postinst=HALTS)
    state_id = begun(fleet)
    with halted(
        fleet, code_call(fleet, NODE, change_code({"state_id": state_id, **request(NEW)}))
    ) as call:
        fleet.shell(NODE, "systemctl kill --signal=KILL unhang-packages.service")
        answer = json.loads(call.communicate(timeout=audits.DEADLINE_S)[0].splitlines()[-1])
    assert answer["stopped_at"] == "applying"
    assert "killed half way" in answer["msg"]
    assert "nvidia-driver" in fleet.shell(NODE, "dpkg --audit")
    assert "allow repair: true" in change(fleet, state_id=state_id, **request(NEW))["msg"]
    fleet.shell(NODE, "touch /run/go")
    repaired = change(fleet, state_id=state_id, repair=True, **request(NEW))
    assert [(row["name"], row["action"]) for row in repaired["changes"]] == [
        ("nvidia-driver", "configure")
    ]
    assert versions(fleet) == [NEW, NEW]
    assert fleet.shell(NODE, "dpkg --audit") == ""


def test_after_a_power_cut_in_the_middle_of_dpkg_the_node_comes_back(fleet, tmp_path):
    equip(fleet, tmp_path, postinst=HALTS)
    state_id = begun(fleet)
    with halted(fleet, code_call(fleet, NODE, change_code({"state_id": state_id, **request(NEW)}))):
        fleet.nodes[NODE].power_off()
    fleet.nodes[NODE].boot()
    assert saved_packages(fleet, state_id)["status"] == "applying"
    assert change(fleet, state_id=state_id, **request(NEW))["half_configured"] == ["nvidia-driver"]
    assert sorted(restore(fleet, state_id)) == sorted(NAMES)
    assert versions(fleet) == [OLD, OLD]
    assert fleet.shell(NODE, "dpkg --audit") == ""


def test_a_connection_that_is_lost_does_not_end_dpkg(fleet, tmp_path):
    equip(fleet, tmp_path, postinst=HALTS)
    state_id = begun(fleet)
    with halted(
        fleet,
        *command_of(fleet, NODE, "package_change", False, {"state_id": state_id, **request(NEW)}),
    ) as call:
        os.killpg(call.pid, signal.SIGKILL)
        fleet.shell(NODE, "pkill -KILL -f 'sshd: [r]oot'; :")
    locked = change(fleet, state_id=state_id, **request(NEW, lock_timeout_s=0))
    assert "an earlier change of packages" in locked["msg"]
    fleet.shell(NODE, "touch /run/go")
    late = change(fleet, state_id=state_id, **request(NEW))
    assert not late["changed"]
    assert versions(fleet) == [NEW, NEW]


def test_whoever_has_apts_lock_is_waited_for_and_named(fleet, tmp_path):
    equip(fleet, tmp_path)
    state_id = begun(fleet)
    code = (
        "import"
        " fcntl,time\nf=open('/var/lib/dpkg/lock-frontend','w')\nfcntl.lockf(f,fcntl.LOCK_EX)\nopen('/run/reached','w')\ntime.sleep(600)\n"
    )
    fleet.plant(NODE, "/srv/unattended-upgrade", code)
    fleet.shell(
        NODE,
        "systemd-run --quiet --unit=unattended python3 /srv/unattended-upgrade",
        undo="systemctl stop unattended; :",
    )
    audits.wait_until(lambda: fleet.nodes[NODE].place("/run/reached").exists(), "the lock is taken")
    refused = change(fleet, state_id=state_id, **request(NEW, lock_timeout_s=1))
    assert "/var/lib/dpkg/lock-frontend (pid " in refused["msg"]
    assert "unattended-upgrade" in refused["msg"]
    assert versions(fleet) == [OLD, OLD]
    fleet.shell(NODE, "systemctl stop unattended")
    assert change(fleet, state_id=state_id, **request(NEW))["changed"]


# Holds dpkg's lock for some seconds just before apt-get itself would take it, as
# unattended-upgrades may.
LATE_LOCK = """\
#!/bin/sh
case "$*" in *--simulate*|*--print-uris*|*" check"*) ;; *" install "*)
    python3 -c "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); open('/run/late', 'w'); time.sleep(6)" &
    while [ ! -e /run/late ]; do sleep 0.1; done ;;
esac
exec /usr/bin/apt-get "$@"
"""


def test_a_lock_that_is_taken_between_the_look_and_the_rollback_is_waited_for(fleet, tmp_path):
    equip(fleet, tmp_path)
    state_id = begun(fleet)
    assert change(fleet, state_id=state_id, **request(NEW))["changed"]
    fleet.plant(NODE, "/usr/local/sbin/apt-get", LATE_LOCK, 0o755)
    fleet.undo.callback(fleet.shell, NODE, "rm -f /run/late")
    assert sorted(restore(fleet, state_id)) == sorted(NAMES)
    fleet.shell(NODE, "test -e /run/late")
    assert versions(fleet) == [OLD, OLD]


def test_a_version_that_the_mirror_has_dropped_is_built_again_and_comes_back(fleet, tmp_path):
    files = equip(fleet, tmp_path)
    fleet.shell(NODE, "echo changed by hand > /usr/lib/nvidia/libnvidia-ml.so.1")
    listed = fleet.shell(
        NODE, "find /usr/lib/nvidia /usr/share/nvidia /etc/nvidia -printf '%p %m %u %l\\n' | sort"
    )
    fleet.plant(
        NODE, f"{FOLDER}/Packages", packages_index([path for path in files if NEW in path.name])
    )
    state_id = begun(fleet)
    done = change(fleet, state_id=state_id, **request(NEW, update_cache=True))
    assert sorted(done["repacked"]) == sorted(NAMES)
    assert versions(fleet) == [NEW, NEW]
    fleet.shell(NODE, f"rm {FOLDER}/*.deb")
    assert sorted(restore(fleet, state_id)) == sorted(NAMES)
    assert versions(fleet) == [OLD, OLD]
    assert (
        fleet.shell(
            NODE,
            "find /usr/lib/nvidia /usr/share/nvidia /etc/nvidia -printf '%p %m %u %l\\n' | sort",
        )
        == listed
    )
    assert fleet.shell(NODE, "cat /usr/lib/nvidia/libnvidia-ml.so.1") == "changed by hand\n"
    fleet.shell(NODE, f"mkdir -p {FOLDER}")


def test_a_kept_package_that_was_damaged_is_refused_in_the_preview_or_fetched_again(
    fleet, tmp_path
):
    files = equip(fleet, tmp_path)
    state_id = begun(fleet)
    assert change(fleet, state_id=state_id, **request(NEW))["changed"]
    kept = f"/var/lib/unhang/states/{state_id}/packages/old/nvidia-driver_{OLD}_amd64.deb"
    fleet.shell(NODE, f"truncate -s 200 {kept}")
    index = packages_index([path for path in files if NEW in path.name])
    fleet.plant(NODE, f"{FOLDER}/Packages", index)
    fleet.shell(NODE, f"{APT} update")
    before = [line for line in state_of(fleet, NODE).splitlines() if "/states/" not in line]
    for check in (True, False):
        refused = call_module(fleet, NODE, "state_restore", check=check, id=state_id)
        assert f"nvidia-driver_{OLD}_amd64.deb is not as it was kept" in refused["msg"]
        assert "200 bytes" in refused["msg"]
    assert [line for line in state_of(fleet, NODE).splitlines() if "/states/" not in line] == before
    fleet.plant(NODE, f"{FOLDER}/Packages", packages_index(files))
    fleet.shell(NODE, f"{APT} update")
    assert {
        row["name"]
        for row in call_module(fleet, NODE, "state_restore", check=True, id=state_id)["packages"]
    } == set(NAMES)
    assert sorted(restore(fleet, state_id)) == sorted(NAMES)
    assert versions(fleet) == [OLD, OLD]


def test_a_rollback_that_would_break_what_an_admin_has_installed_since_is_refused_and_names_it(
    fleet, tmp_path
):
    addon = build_package(
        tmp_path, "driver-addon", "1", fields=f"Depends: nvidia-driver (= {NEW})\n"
    )
    tool = build_package(tmp_path, "brought-tool", "1")
    user = build_package(tmp_path, "tool-user", "1", fields="Depends: brought-tool\n")
    equip(fleet, tmp_path, addon, tool, user)
    state_id = begun(fleet)
    assert change(
        fleet,
        state_id=state_id,
        **{**request(NEW), "install": {"nvidia-driver": NEW, "brought-tool": "1"}},
    )["changed"]
    fleet.shell(NODE, f"{APT} install driver-addon tool-user")
    before = [line for line in state_of(fleet, NODE).splitlines() if "/states/" not in line]
    for check in (True, False):
        refused = call_module(fleet, NODE, "state_restore", check=check, id=state_id)
        assert f"driver-addon: Depends: nvidia-driver (= {NEW})" in refused["msg"]
        assert "tool-user: Depends: brought-tool" in refused["msg"]
    assert [line for line in state_of(fleet, NODE).splitlines() if "/states/" not in line] == before
    fleet.shell(NODE, "apt-get -q check")
    fleet.shell(NODE, f"{APT} purge driver-addon tool-user")
    assert sorted(restore(fleet, state_id)) == ["brought-tool", *sorted(NAMES)]
    assert versions(fleet) == [OLD, OLD]
    fleet.shell(NODE, "apt-get -q check")


def test_what_an_admin_has_upgraded_and_held_since_stays_unless_the_rollback_names_it(
    fleet, tmp_path
):
    newest = "540.1.1-1"
    equip(fleet, tmp_path, *driver(tmp_path, newest), build_package(tmp_path, "brought-tool", "1"))
    state_id = begun(fleet)
    assert change(
        fleet,
        state_id=state_id,
        **{
            **request(NEW),
            "install": {"nvidia-driver": NEW, "libnvidia-ml1": NEW, "brought-tool": "1"},
        },
    )["changed"]
    fleet.shell(
        NODE,
        f"rm {PIN}; {APT} install nvidia-driver={newest} libnvidia-ml1={newest}; apt-mark hold"
        " nvidia-driver",
    )
    foretold = call_module(fleet, NODE, "state_restore", check=True, id=state_id)
    assert [row["name"] for row in foretold["packages"]] == ["brought-tool"]
    assert (
        f"nvidia-driver: unhang left {NEW} and it is {newest} on hold now; somebody changed it since"
        in " ".join(foretold["lines"])
    )
    named = call_module(
        fleet, NODE, "state_restore", check=True, id=state_id, packages=["nvidia-driver", "lib*"]
    )
    assert sorted(row["name"] for row in named["packages"]) == ["brought-tool", *sorted(NAMES)]
    done = call_module(fleet, NODE, "state_restore", id=state_id)
    assert done["lines"][1:] == foretold["lines"][1:]
    assert fleet.shell(
        NODE, "dpkg-query -W -f '${Version} ${db:Status-Abbrev}\n' libnvidia-ml1 nvidia-driver"
    ).split() == [newest, "ii", newest, "hi"]


@pytest.mark.parametrize("full", ["/boot", "/opt"])
def test_a_file_system_that_is_full(fleet, tmp_path, full):
    """The room in /boot is checked in advance; /opt stands for a file system that no estimate
    covers: dpkg itself finds it full."""
    kernel = build_package(
        tmp_path, "linux-image-6.1.0-99-amd64", "6.1.99-1", ["/boot/vmlinuz-6.1.0-99-amd64"]
    )
    big = build_package(tmp_path, "nvidia-big", "1", ["/opt/big"])
    (tmp_path / "nvidia-big-1/opt/big").write_bytes(os.urandom(3 << 20))
    subprocess.run(
        [
            "dpkg-deb",
            "--build",
            "--root-owner-group",
            "-Znone",
            str(tmp_path / "nvidia-big-1"),
            str(big),
        ],
        check=True,
        capture_output=True,
    )
    equip(fleet, tmp_path, kernel, big)
    fleet.shell(NODE, f"mount -t tmpfs -o size=1M small {full}", undo=f"umount {full}")
    state_id = begun(fleet)
    name = "linux-image-6.1.0-99-amd64" if full == "/boot" else "nvidia-big"
    answer = change(
        fleet,
        state_id=state_id,
        install={name: ""},
        update_cache=False,
        root_free_min_mib=20,
        repair=True,
    )
    if full == "/boot":
        assert "the file system of /boot has" in answer["refused"][0]
    else:
        assert "No space left on device" in answer["msg"]
        restore(fleet, state_id)
    assert fleet.shell(NODE, "dpkg --audit") == ""
    assert name not in fleet.shell(NODE, "dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n'")


def small_var(fleet, spare_mib):
    """The node's /var is a file system of its own with this much room, until the test ends."""
    copied = (
        f"mount -t tmpfs -o size=$(($(du -sm /var | cut -f 1) + {spare_mib}))M small /mnt && cp -a"
        " /var/. /mnt/ && mount --bind /mnt /var && umount /mnt"
    )
    fleet.shell(NODE, copied, undo="umount -l /var")


FILL = "dd if=/dev/zero of=/var/fill bs=64k status=none 2>/dev/null || :"


def test_a_kernel_or_a_driver_for_which_there_is_no_room_is_refused_before_anything_is_touched(
    fleet, tmp_path
):
    large = "Installed-Size: 999999999\n"  # in KiB: more than any disk of a test node's machine has
    kernel = build_package(
        tmp_path, "linux-image-6.1.0-99-amd64", "6.1.99-1", ["/boot/vmlinuz-6.1.0-99-amd64"], large
    )
    equip(fleet, tmp_path, kernel)
    small_var(fleet, 30)
    state_id = begun(fleet)
    before = state_of(fleet, NODE)
    no_kernel = change(
        fleet, state_id=state_id, install={"linux-image-6.1.0-99-amd64": ""}, update_cache=False
    )
    assert "the file system of / and " in no_kernel["refused"][0]
    no_driver = change(fleet, state_id=state_id, **request(NEW, root_free_min_mib=500))
    assert "the file system of /var and /var/lib/unhang has" in no_driver["refused"][0]
    assert state_of(fleet, NODE) == before
    assert not fleet.nodes[NODE].place("/boot/vmlinuz-6.1.0-99-amd64").exists()


def test_a_var_that_fills_up_in_the_middle_of_dpkg_is_reported_and_the_next_run_finishes(
    fleet, tmp_path
):
    equip(fleet, tmp_path, preinst=f"[ -e /run/go ] || {{ {FILL}; }}")
    small_var(fleet, 60)
    state_id = begun(fleet)
    failed = change(fleet, state_id=state_id, **request(NEW))
    assert failed["failed"]
    assert "No space left on device" in failed["msg"]
    assert saved_packages(fleet, state_id)["status"] in ("applying", "failed")
    fleet.shell(NODE, "touch /run/go; rm /var/fill")
    finished = change(fleet, state_id=state_id, **request(NEW, repair=True))
    assert not finished["failed"]
    assert versions(fleet) == [NEW, NEW]
    assert fleet.shell(NODE, "dpkg --audit") == ""
    assert sorted(restore(fleet, state_id)) == sorted(NAMES)
    assert versions(fleet) == [OLD, OLD]
