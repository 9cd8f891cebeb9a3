"""The modules that keep lines of files, each on a prepared tree: the files that they write, the
lines that they disable, and that they restore all of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from case_rows import case_rows
from fakes.ansible_module import run_module, tree
from fakes.node_tree import Link, plant
from test_own_file_module import HAND_WRITTEN, PINNED, WANTED

from unhang_node.change.config.own_files import plan_own
from unhang_node.change.host import limit_values
from unhang_node.change.host.setting import Setting, apply_setting
from unhang_node.change.journal.running_values import Change

ROWS = case_rows(__file__)

UNIT = "[Service]\nExecStart=/bin/true\n"
NODE = {
    **PINNED,
    "/etc/nccl.conf": HAND_WRITTEN,
    "/etc/security/limits.conf": (
        "# site\n* hard memlock 64\n@students - nofile 512\n* hard nofile 1048576\nada soft stack"
        " unlimited\n"
    ),
    "/etc/security/limits.d/20-site.conf": "* soft memlock unlimited\n",
    "/lib/systemd/system/ssh.service": UNIT,
    "/lib/systemd/system/slurmd.service": UNIT + "LimitMEMLOCK=infinity\n",
    "/lib/systemd/system/docker.service": UNIT + "LimitNOFILE=infinity\n",
    "/etc/systemd/system/ray.service": UNIT + "Environment=CUDA_VISIBLE_DEVICES=0\n",
    "/etc/sysctl.conf": "#kernel.numa_balancing = 1\nvm.swappiness = 1\n",
    "/etc/sysctl.d/99-site.conf": (
        "kernel/numa_balancing=1\nkernel.numa_balancing_scan_size_mb = 256\n"
    ),
    "/proc/sys/kernel/numa_balancing": "1\n",
    "/proc/meminfo": "MemTotal:       131072 kB\n",
    "/etc/default/grub": 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX="iommu=nopt quiet"\n',
    "/usr/sbin/update-grub": "#!/bin/sh\n",
    "/etc/modprobe.d/site.conf": (
        "options nvidia NVreg_EnableGpuFirmware=1\nblacklist nvidia_peermem\noptions nvidia"
        " NVreg_A=1 NVreg_EnableGpuFirmware=1\n"
    ),
    "/etc/initramfs-tools/modules": "# nvidia\n",
}
CALLS = {
    "memlock": ("host_setting", {"setting": "memlock", "value": -1, "units": ["ray.service"]}),
    "nofile": (
        "host_setting",
        {"setting": "nofile", "value": 131072, "units": ["ray.service", "none.service"]},
    ),
    "stack": ("host_setting", {"setting": "stack", "value": 8388608}),
    "shm": ("host_setting", {"setting": "shm_size", "value": 67108864}),
    "numa_balancing": (
        "host_setting",
        {"setting": "kernel_parameter", "name": "kernel.numa_balancing", "value": "0"},
    ),
    "iommu": ("boot_parameter", {"name": "iommu", "parameters": ["iommu=pt"]}),
    "nvidia_parameters": (
        "host_setting",
        {
            "setting": "kernel_module",
            "name": "nvidia",
            "parameters": {"NVreg_EnableGpuFirmware": 0},
        },
    ),
    "remove_ipc": (
        "own_file",
        {"path": "/etc/systemd/logind.conf.d/zz-unhang.conf", "lines": ["[Login]", "RemoveIPC=no"]},
    ),
    "nccl_conf": (
        "own_file",
        {"path": "/etc/nccl.conf", "format": "nccl_conf", "settings": WANTED, "note": "profile"},
    ),
    "environment": (
        "own_file",
        {"path": "/etc/environment", "format": "environment", "settings": WANTED},
    ),
    "launch_paths": (
        "own_file",
        {
            "files": [
                {"path": f"/etc/unhang/{form}", "format": form, "settings": WANTED}
                for form in ("shell", "systemd", "task_prolog", "env_file")
            ]
            + [{"path": "/etc/unhang/none", "format": "enroot"}]
        },
    ),
    "pins": ("disabled_setting", {"names": ["CUDA_VISIBLE_DEVICES"], "owner": "gpu_binding"}),
    "peer_memory": (
        "host_setting",
        {"setting": "kernel_module", "name": "nvidia-peermem", "at_boot": True},
    ),
}
KEPT = ("setting", "name", "path", "format", "files", "owner")
IN_FILES_OF_OTHERS = ("nccl_conf", "environment", "pins")


@pytest.fixture
def node(tmp_path):
    """A planted node, and how a module is run on it."""
    plant(tmp_path / "node", NODE)

    def run(module, options, **more):
        return run_module(module, rootfs=str(tmp_path / "node"), **{**options, **more})

    run.root = tmp_path / "node"
    return run


def text(node, path):
    return (node.root / path.lstrip("/")).read_text()


def files_of(root):
    return {path: content for path, content in tree(root).items() if content is not None}


def undone(module, options):
    """The options that take it back."""
    state = "restored" if module == "disabled_setting" else "absent"
    return {**{key: options[key] for key in KEPT if key in options}, "state": state}


@pytest.mark.parametrize("step", CALLS)
def test_check_mode_writes_nothing_then_it_is_written_then_nothing_is_left_to_do_then_it_is_taken_back(
    node, step
):
    module, options = CALLS[step]
    before, folders = files_of(node.root), tree(node.root).keys()
    foretold = node(module, options, check=True)
    assert (files_of(node.root), tree(node.root).keys()) == (before, folders)
    done = node(module, options)
    assert done == foretold
    assert done["changed"], done
    applied_state = tree(node.root)
    assert files_of(node.root) != before
    again = node(module, options)
    assert (again["changed"], again["diff"]) == (False, [])
    assert tree(node.root) == applied_state
    absent = undone(module, options)
    assert node(module, absent, check=True)["changed"]
    assert tree(node.root) == applied_state
    assert node(module, absent)["changed"]
    assert files_of(node.root) == before
    assert not node(module, absent)["changed"]


@pytest.mark.parametrize("step", CALLS)
def test_the_diff_shows_every_file_that_changes_and_no_other(node, step):
    module, options = CALLS[step]
    before = files_of(node.root)
    done = node(module, options)
    changed = {
        path
        for path, content in files_of(node.root).items()
        if before.get(path) != content and "/var/lib/unhang" not in path
    }
    assert {row["before_header"] for row in done["diff"]} == changed == set(done["files"])


@pytest.mark.parametrize("step", [step for step in CALLS if step not in IN_FILES_OF_OTHERS])
def test_a_file_of_the_same_name_that_somebody_else_wrote_is_refused(node, step):
    module, options = CALLS[step]
    done = node(module, options)
    node(module, undone(module, options))
    place = node.root / next(path for path in done["files"] if "unhang" in path).lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("by hand\n")
    refused = node(module, options)
    assert refused["failed"]
    assert "somebody else wrote" in refused["msg"]
    assert place.read_text() == "by hand\n"


# of `systemctl edit`, whose name sorts behind ours
OVERRIDE = "/etc/systemd/system/ssh.service.d/override.conf"


@pytest.mark.parametrize(
    ("step", "more", "lines", "written"),
    [
        (
            "memlock",
            {},
            ["* hard memlock 64"],
            {
                "/etc/security/limits.conf": "# disabled by unhang: * hard memlock 64\n",
                "/etc/security/limits.d/20-site.conf": None,
                "/etc/security/limits.d/00-unhang-memlock.conf": (
                    "* hard memlock unlimited\nroot soft memlock unlimited\n"
                ),
                "/etc/systemd/system/ssh.service.d/90-unhang-memlock.conf": "[Service]\nLimitMEMLOCK=infinity\n",
                "/etc/systemd/system/docker.service.d/90-unhang-memlock.conf": "[Service]\nLimitMEMLOCK=infinity\n",
                "/etc/systemd/system/ray.service.d/90-unhang-memlock.conf": "[Service]\nLimitMEMLOCK=infinity\n",
                "/etc/systemd/system/slurmd.service.d/90-unhang-memlock.conf": None,  # it is given enough
                "/etc/systemd/system/none.service.d/90-unhang-memlock.conf": None,
            },
        ),
        (
            "nofile",
            {},
            ["@students - nofile 512"],
            {
                "/etc/systemd/system/docker.service.d/90-unhang-nofile.conf": None,
                # systemd gives every service 524288 hard by itself, and limits.conf gave everybody
                # 1048576
                "/etc/systemd/system/ssh.service.d/90-unhang-nofile.conf": "LimitNOFILE=131072:524288\n",
                "/etc/security/limits.d/00-unhang-nofile.conf": "* hard nofile 1048576\n",
            },
        ),
        (
            "nofile",
            {"/etc/systemd/system/ray.service": UNIT + "LimitNOFILE=1024:1048576\n"},
            ["@students - nofile 512"],
            {
                "/etc/systemd/system/ray.service.d/90-unhang-nofile.conf": "LimitNOFILE=131072:1048576\n"
            },
        ),
        (
            "stack",
            {},
            ["ada soft stack unlimited"],
            {
                "/etc/security/limits.d/00-unhang-stack.conf": "* soft stack 8192\n",
                "/etc/systemd/system/ssh.service.d/90-unhang-stack.conf": "LimitSTACK=8388608:infinity\n",
            },
        ),
        (
            "memlock",
            {"/etc/systemd/system.conf": "[Manager]\nDefaultLimitMEMLOCK=64M\n"},
            ["* hard memlock 64"],
            {
                "/etc/systemd/system.conf.d/90-unhang-memlock.conf": (
                    "[Manager]\nDefaultLimitMEMLOCK=infinity\n"
                )
            },
        ),
        (
            "memlock",
            {
                OVERRIDE: "[Service]\nLimitMEMLOCK=infinity\n",
                # ours is read later
                "/etc/systemd/system/docker.service.d/05-site.conf": "[Service]\nLimitMEMLOCK=1\n",
            },
            ["* hard memlock 64"],
            {
                OVERRIDE: None,
                "/etc/systemd/system/ssh.service.d/90-unhang-memlock.conf": None,
                "/etc/systemd/system/docker.service.d/05-site.conf": None,
            },
        ),
        # the other spelling of a parameter, and its neighbours
        (
            "numa_balancing",
            {},
            ["kernel/numa_balancing=1"],
            {
                "/etc/sysctl.conf": None,
                "/etc/sysctl.d/99-site.conf": "\nkernel.numa_balancing_scan",
            },
        ),
        (
            "peer_memory",
            {},
            ["blacklist nvidia_peermem"],
            {"/etc/modules-load.d/unhang-nvidia-peermem.conf": "\nnvidia-peermem\n"},
        ),
        # Debian knows the driver by the name of its file
        (
            "nvidia_parameters",
            {
                "/proc/sys/kernel/osrelease": "6.1.0-50-amd64\n",
                "/lib/modules/6.1.0-50-amd64/modules.dep": "updates/dkms/nvidia-current.ko:\n",
            },
            ["options nvidia NVreg_EnableGpuFirmware=1"],
            {
                "/etc/modprobe.d/zz-unhang-nvidia.conf": (
                    "\noptions nvidia NVreg_EnableGpuFirmware=0\n"
                    "options nvidia-current NVreg_EnableGpuFirmware=0\n"
                )
            },
        ),
    ],
)
def test_what_contradicts_is_disabled_and_what_is_enough_stays(node, step, more, lines, written):
    plant(node.root, more)
    answer = node(*CALLS[step])
    assert [row["text"] for row in answer["lines"]] == lines
    for path, part in written.items():
        assert part in text(node, path) if part else path not in answer["files"], path


def test_a_later_drop_in_of_others_that_gives_less_is_disabled_and_comes_back(node):
    plant(
        node.root,
        {
            OVERRIDE: "[Service]\nLimitMEMLOCK=64K\nLimitNOFILE=1024\n",
            "/etc/systemd/system.conf.d/99-site.conf": "[Manager]\nDefaultLimitMEMLOCK=64M\n",
        },
    )
    before = files_of(node.root)
    answer = node(*CALLS["memlock"])
    assert [(row["file"], row["text"]) for row in answer["lines"][1:]] == [
        ("/etc/systemd/system.conf.d/99-site.conf", "DefaultLimitMEMLOCK=64M"),
        (OVERRIDE, "LimitMEMLOCK=64K"),
    ]
    assert (
        text(node, OVERRIDE)
        == "[Service]\n# disabled by unhang: LimitMEMLOCK=64K\nLimitNOFILE=1024\n"
    )
    assert text(node, "/etc/systemd/system/ssh.service.d/90-unhang-memlock.conf").endswith(
        "LimitMEMLOCK=infinity\n"
    )
    assert not node(*CALLS["memlock"])["changed"]
    node("host_setting", {"setting": "memlock"}, state="absent")
    assert files_of(node.root) == before


def test_a_later_drop_in_of_a_package_is_named_for_a_person(node):
    path = "/usr/lib/systemd/system/ssh.service.d/99-vendor.conf"
    plant(node.root, {path: "[Service]\nLimitMEMLOCK=64K\n"})
    answer = node(*CALLS["memlock"])
    assert [(row["file"], row["line"]) for row in answer["needs_manual_action"]] == [(path, 2)]
    assert path not in answer["files"]


def test_a_drop_in_of_a_unit_that_is_no_longer_named_goes(node):
    node(*CALLS["memlock"])
    assert node("host_setting", {"setting": "memlock", "value": -1})["files"] == [
        "/etc/systemd/system/ray.service.d/90-unhang-memlock.conf"
    ]


def test_a_unit_known_by_an_alias_gets_one_drop_in_under_its_own_name(node):
    (node.root / "etc/systemd/system/sshd.service").symlink_to("/lib/systemd/system/ssh.service")
    assert not [path for path in node(*CALLS["memlock"])["files"] if "sshd.service" in path]


def test_shared_memory_beyond_the_nodes_memory_is_refused(node):
    refused = node("host_setting", {"setting": "shm_size", "value": 134217729})
    assert "is more than the 134217728 bytes" in refused["msg"]


def test_words_of_others_that_contradict_are_named_and_ours_stand_behind_them(node):
    answer = node(*CALLS["iommu"])
    assert [row["why"] for row in answer["needs_manual_action"]] == [
        "/etc/default/grub:2: iommu=nopt is on the command line before iommu=pt, which wins;"
        " take it out"
    ]
    assert text(node, "/etc/default/grub.d/zz-unhang-iommu.cfg").endswith(
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT iommu=pt"\n'
    )


@pytest.mark.parametrize("word", ["iommu=pt; reboot", '"', "a$b", "two words", ""])
def test_what_is_no_word_of_a_command_line_is_refused(node, word):
    assert (
        "is not a parameter of a kernel command line"
        in node("boot_parameter", {"name": "iommu", "parameters": [word]})["msg"]
    )


def test_a_node_without_a_known_boot_loader_says_so_and_stays_as_it_is(node):
    (node.root / "usr/sbin/update-grub").unlink()
    before = tree(node.root)
    answer = node(*CALLS["iommu"])
    assert not answer["changed"]
    assert "the node has neither" in answer["needs_manual_action"][0]["why"]
    assert tree(node.root) == before


def test_a_parameter_that_stands_among_others_is_left_for_a_person_and_ours_comes_later(node):
    answer = node(*CALLS["nvidia_parameters"])
    assert [row["line"] for row in answer["lines"]] == [1]
    assert [(row["file"], row["line"]) for row in answer["needs_manual_action"]] == [
        ("/etc/modprobe.d/site.conf", 3)
    ]


SHARED = {
    "/proc/self/mountinfo": (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:5 / /shared rw - nfs4 server:/shared rw\n"
    ),
    "/shared/limits.conf": "* hard memlock 64\n",
    "/shared/modprobe.conf": "options nvidia NVreg_EnableGpuFirmware=1\n",
    "/etc/security/limits.d/50-fleet.conf": Link("/shared/limits.conf"),
    "/etc/modprobe.d/fleet.conf": Link("/shared/modprobe.conf"),
}


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ("memlock", "/etc/security/limits.d/50-fleet.conf"),
        ("nvidia_parameters", "/etc/modprobe.d/fleet.conf"),
    ],
)
def test_a_line_of_others_in_a_file_that_all_nodes_read_is_named_and_stays(node, step, path):
    plant(node.root, SHARED)
    shared = tree(node.root / "shared")
    named = [row for row in node(*CALLS[step])["needs_manual_action"] if row["file"] == path]
    assert [row["line"] for row in named] == [1]
    assert "lies on nfs4 at /shared, which other nodes read too" in named[0]["why"]
    assert tree(node.root / "shared") == shared


@pytest.mark.parametrize(
    ("step", "word", "wins"),
    ROWS["test_a_word_of_the_kernels_command_line_that_wins_over_modprobe_d_is_named"],
)
def test_a_word_of_the_kernels_command_line_that_wins_over_modprobe_d_is_named(
    node, step, word, wins
):
    plant(node.root, {"/proc/cmdline": f"BOOT_IMAGE=/vmlinuz ro {word} quiet\n"})
    found = [
        row["why"]
        for row in node(*CALLS[step])["needs_manual_action"]
        if row["file"] == "/proc/cmdline"
    ]
    assert [why.partition(" ")[0] for why in found] == ([word] if wins else [])


TUNED = {
    "/etc/systemd/system/multi-user.target.wants/tuned.service": "",
    "/etc/tuned/active_profile": "site\n",
    "/etc/tuned/site/tuned.conf": (
        "[main]\ninclude=throughput-performance\n[sysctl]\nvm.swappiness=1\n"
    ),
    "/usr/lib/tuned/throughput-performance/tuned.conf": (
        "[sysctl]\n# kernel.numa_balancing = 0\nkernel.numa_balancing = 1\n"
    ),
}


@pytest.mark.parametrize(
    ("main", "more", "wins"),
    ROWS["test_a_profile_of_tuned_that_wins_over_sysctl_d_is_named"],
)
def test_a_profile_of_tuned_that_wins_over_sysctl_d_is_named(node, main, more, wins):
    plant(node.root, {**TUNED, "/etc/tuned/tuned-main.conf": main, **more})
    answer = node(*CALLS["numa_balancing"])
    assert [(row["file"], row["name"]) for row in answer["needs_manual_action"]] == (
        [("/usr/lib/tuned/throughput-performance/tuned.conf", "kernel.numa_balancing")]
        if wins
        else []
    )
    assert text(node, "/etc/sysctl.d/zz-unhang-kernel.numa_balancing.conf").endswith(
        "kernel.numa_balancing = 0\n"
    )


def test_a_tuned_that_does_not_run_wins_over_nothing(node):
    plant(node.root, {**TUNED, "/etc/tuned/tuned-main.conf": "reapply_sysctl = 0\n"})
    (node.root / "etc/systemd/system/multi-user.target.wants/tuned.service").unlink()
    assert node(*CALLS["numa_balancing"])["needs_manual_action"] == []


@pytest.mark.parametrize(
    ("line", "is_early"),
    [
        ('force_drivers+=" nvidia nvidia_modeset "', True),
        ("nvidia", True),
        ('omit_drivers+=" nvidia nvidia-drm "', False),
        ("# nvidia", False),
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        "/etc/initramfs-tools/modules",
        "/etc/dracut.conf.d/99-nvidia.conf",
        "/usr/lib/dracut/dracut.conf.d/99-nvidia.conf",
    ],
)
def test_an_initial_file_system_that_loads_the_driver_is_reported(node, path, line, is_early):
    plant(node.root, {path: line + "\n"})
    answer = node(*CALLS["nvidia_parameters"])
    reported = {row["file"]: row["why"] for row in answer["needs_manual_action"]}
    assert ("update-initramfs -u" in reported.get(path, "")) == is_early


@pytest.mark.parametrize("value", ["1 2", 'a"b', "#"])
def test_a_parameter_that_no_file_can_carry_is_refused(node, value):
    assert (
        "without blanks and quotes"
        in node(*CALLS["nvidia_parameters"], parameters={"NVreg_A": value})["msg"]
    )


def test_lines_that_are_no_utf8_keep_their_bytes(node):
    place = node.root / "etc/security/limits.conf"
    place.write_bytes(b"# caf\xe9\n* hard memlock 64 # caf\xe9\n")
    node(*CALLS["memlock"])
    assert place.read_bytes() == b"# caf\xe9\n# disabled by unhang: * hard memlock 64 # caf\xe9\n"
    node("host_setting", {"setting": "memlock"}, state="absent")
    assert place.read_bytes() == b"# caf\xe9\n* hard memlock 64 # caf\xe9\n"


@pytest.mark.parametrize(
    ("limit", "wanted", "most", "hard"),
    ROWS["test_no_limit_is_written_that_cannot_be_set_for_some_logins_would_fail_over_it"],
)
def test_no_limit_is_written_that_cannot_be_set_for_some_logins_would_fail_over_it(
    limit, wanted, most, hard
):
    assert f"* hard {limit} {hard}" in limit_values.wanted_conf(limit, wanted, [], most)
    given = (
        limit_values.wanted_drop_in(limit, wanted, limit_values.Unit(name="a.service"), most)[1]
        .rpartition("=")[2]
        .rpartition(":")[2]
    )
    assert given == {"unlimited": "infinity", "2048": "2097152"}.get(hard, hard)


def set_value(node, write):
    others = [("/etc/sysctl.conf", 2, "vm.swappiness = 1")]
    plan = plan_own(str(node.root), {"/etc/sysctl.d/zz-unhang-a.b.conf": ["a.b = 1"]}, others)
    setting = Setting("host_tuning_a.b", plan, [Change("sysctl", "a.b", "0", "1")], write, True)
    return apply_setting(str(node.root), "", setting, False)


def test_files_of_a_value_that_cannot_be_set_are_taken_back(node):
    def refuse(_name, _value):
        raise ValueError("the kernel refuses it")

    before = files_of(node.root)
    with pytest.raises(ValueError, match="the kernel refuses it"):
        set_value(node, refuse)
    assert files_of(node.root) == before


def test_a_value_that_only_a_person_can_set_is_named_and_its_files_stay(node):
    done = set_value(node, lambda _name, _value: "it stays")
    assert (done.plan.manual, done.changes) == (["it stays"], [])
    assert "\na.b = 1\n" in text(node, "/etc/sysctl.d/zz-unhang-a.b.conf")


@pytest.mark.parametrize("value", [None, "many", "1.5", "-2"])
def test_a_limit_without_a_number_is_refused_and_nothing_is_written(node, value):
    before = tree(node.root)
    assert "value " in node("host_setting", {"setting": "nofile", "value": value})["msg"]
    assert tree(node.root) == before


EARLIER = Path(__file__).parents[2] / "fixtures" / "saved_by_earlier_modules.json"


@pytest.fixture
def earlier(tmp_path):
    """A node that the modules changed which these replace, and its files before."""
    saved = json.loads(EARLIER.read_text().replace(" 0:0", f" {os.getuid()}:{os.getgid()}"))
    plant(tmp_path, saved["after"])
    [state] = (tmp_path / "var/lib/unhang/states").glob("*/state.json")
    for path, written in json.loads(state.read_text())["left"]["files"].items():
        if written:
            (tmp_path / path.lstrip("/")).chmod(int(written.split()[1], 8))
    return tmp_path, {path: text.encode() for path, text in saved["before"].items()}, saved["calls"]


def test_a_state_that_earlier_modules_saved_is_rolled_back(earlier):
    root, before, _calls = earlier
    answer = run_module("state_restore", rootfs=str(root), id="latest")
    assert answer["needs_manual_action"] == []
    after = files_of(root)
    assert {path: after[path] for path in after if "/var/lib/unhang/states" not in path} == before


def test_what_earlier_modules_wrote_is_found_done_and_can_be_taken_back(earlier):
    root, before, calls = earlier
    for module, options in calls:
        assert not run_module(module, rootfs=str(root), **options)["changed"], options
    for module, options in calls:
        assert run_module(module, rootfs=str(root), **undone(module, options))["changed"], options
    running = {"/proc/sys/net/ipv4/tcp_rmem": b"4 5 6\n"}  # of a tree, which is no running system
    after = files_of(root)
    assert {path: after[path] for path in after if "/var/lib/unhang/states" not in path} == {
        **before,
        **running,
    }
