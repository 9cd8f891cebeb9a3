"""The modules of the role host_tuning, each on a prepared tree: the files that they write, the
lines that they disable, and that they restore all of it."""

from __future__ import annotations

import pytest
from fakes.ansible_module import run_module, tree
from fakes.node_tree import Link, plant

from unhang_node.change.config.own_files import plan_own
from unhang_node.change.host import limit_values
from unhang_node.change.host.setting import Setting, apply_setting
from unhang_node.change.journal.running_values import Change

UNIT = "[Service]\nExecStart=/bin/true\n"
NODE = {
    "/etc/security/limits.conf": (
        "# site\n* hard memlock 64\n@students - nofile 512\n* hard nofile 1048576\nada soft stack"
        " unlimited\n"
    ),
    "/etc/security/limits.d/20-site.conf": "* soft memlock unlimited\n",
    "/lib/systemd/system/ssh.service": UNIT,
    "/lib/systemd/system/slurmd.service": UNIT + "LimitMEMLOCK=infinity\n",
    "/lib/systemd/system/docker.service": UNIT + "LimitNOFILE=infinity\n",
    "/etc/systemd/system/ray.service": UNIT,
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
    "peer_memory": (
        "host_setting",
        {"setting": "kernel_module", "name": "nvidia-peermem", "at_boot": True},
    ),
}
KEPT = ("setting", "name", "path")


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


@pytest.mark.parametrize("step", CALLS)
def test_check_mode_writes_nothing_then_it_is_written_then_nothing_is_left_to_do_then_it_is_taken_back(
    node, step
):
    module, options = CALLS[step]
    before = tree(node.root)
    foretold = node(module, options, check=True)
    assert tree(node.root) == before
    done = node(module, options)
    assert done == foretold
    assert done["changed"], done
    applied_state = tree(node.root)
    assert applied_state != before
    again = node(module, options)
    assert (again["changed"], again["diff"]) == (False, [])
    assert tree(node.root) == applied_state
    absent = {key: options[key] for key in KEPT if key in options}
    assert node(module, absent, state="absent", check=True)["changed"]
    assert tree(node.root) == applied_state
    assert node(module, absent, state="absent")["changed"]
    assert {path: content for path, content in tree(node.root).items() if content is not None} == {
        path: content for path, content in before.items() if content is not None
    }
    assert not node(module, absent, state="absent")["changed"]


@pytest.mark.parametrize("step", CALLS)
def test_the_diff_shows_every_file_that_changes_and_no_other(node, step):
    module, options = CALLS[step]
    before = tree(node.root)
    done = node(module, options)
    changed = {
        path
        for path, content in tree(node.root).items()
        if content is not None and before.get(path) != content and "/var/lib/unhang" not in path
    }
    assert {row["before_header"] for row in done["diff"]} == changed == set(done["files"])


@pytest.mark.parametrize("step", CALLS)
def test_a_file_of_the_same_name_that_somebody_else_wrote_is_refused(node, step):
    module, options = CALLS[step]
    done = node(module, options)
    node(module, {key: options[key] for key in KEPT if key in options}, state="absent")
    place = node.root / next(path for path in done["files"] if "unhang" in path).lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("by hand\n")
    refused = node(module, options)
    assert refused["failed"]
    assert "somebody else wrote" in refused["msg"]
    assert place.read_text() == "by hand\n"


def test_memlock_of_others_that_is_too_low_is_disabled_and_what_is_enough_stays(node):
    answer = node(*CALLS["memlock"])
    assert [row["text"] for row in answer["lines"]] == ["* hard memlock 64"]
    assert "# disabled by unhang: * hard memlock 64\n" in text(node, "/etc/security/limits.conf")
    assert "/etc/security/limits.d/20-site.conf" not in answer["files"]
    assert "* hard memlock unlimited\nroot soft memlock unlimited\n" in text(
        node, "/etc/security/limits.d/00-unhang-memlock.conf"
    )


def test_only_units_that_are_given_too_little_get_a_drop_in(node):
    files = node(*CALLS["memlock"])["files"]
    assert {path for path in files if path.endswith("90-unhang-memlock.conf")} == {
        f"/etc/systemd/system/{unit}.d/90-unhang-memlock.conf"
        for unit in ("ssh.service", "docker.service", "ray.service")
    }
    assert text(node, "/etc/systemd/system/ssh.service.d/90-unhang-memlock.conf").endswith(
        "[Service]\nLimitMEMLOCK=infinity\n"
    )


def test_nothing_that_is_higher_already_is_lowered(node):
    files = node(*CALLS["nofile"])["files"]
    assert "/etc/systemd/system/docker.service.d/90-unhang-nofile.conf" not in files
    # systemd gives every service 524288 hard by itself, and limits.conf gave everybody 1048576.
    assert text(node, "/etc/systemd/system/ssh.service.d/90-unhang-nofile.conf").endswith(
        "LimitNOFILE=131072:524288\n"
    )
    assert "* hard nofile 1048576\n" in text(node, "/etc/security/limits.d/00-unhang-nofile.conf")
    assert "# disabled by unhang: @students - nofile 512\n" in text(
        node, "/etc/security/limits.conf"
    )


def test_an_unlimited_stack_is_what_is_disabled(node):
    answer = node(*CALLS["stack"])
    assert [row["text"] for row in answer["lines"]] == ["ada soft stack unlimited"]
    assert "* soft stack 8192\n" in text(node, "/etc/security/limits.d/00-unhang-stack.conf")
    assert text(node, "/etc/systemd/system/ssh.service.d/90-unhang-stack.conf").endswith(
        "LimitSTACK=8388608:infinity\n"
    )


def test_a_default_of_systemd_that_is_too_low_is_overruled(node):
    plant(node.root, {"/etc/systemd/system.conf": "[Manager]\nDefaultLimitMEMLOCK=64M\n"})
    assert "/etc/systemd/system.conf.d/90-unhang-memlock.conf" in node(*CALLS["memlock"])["files"]
    assert text(node, "/etc/systemd/system.conf.d/90-unhang-memlock.conf").endswith(
        "[Manager]\nDefaultLimitMEMLOCK=infinity\n"
    )


# of `systemctl edit`, whose name sorts behind ours
OVERRIDE = "/etc/systemd/system/ssh.service.d/override.conf"


def test_a_later_drop_in_of_others_that_gives_less_is_disabled_and_comes_back(node):
    plant(
        node.root,
        {
            OVERRIDE: "[Service]\nLimitMEMLOCK=64K\nLimitNOFILE=1024\n",
            "/etc/systemd/system.conf.d/99-site.conf": "[Manager]\nDefaultLimitMEMLOCK=64M\n",
        },
    )
    before = tree(node.root)
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
    assert {path: content for path, content in tree(node.root).items() if content is not None} == {
        path: content for path, content in before.items() if content is not None
    }


def test_a_later_drop_in_of_others_that_gives_enough_stays(node):
    plant(
        node.root,
        {
            OVERRIDE: "[Service]\nLimitMEMLOCK=infinity\n",
            "/etc/systemd/system/docker.service.d/05-site.conf": "[Service]\nLimitMEMLOCK=1\n",
        },
    )
    answer = node(*CALLS["memlock"])
    assert OVERRIDE not in answer["files"]
    assert "/etc/systemd/system/ssh.service.d/90-unhang-memlock.conf" not in answer["files"]
    # ours is read later
    assert "/etc/systemd/system/docker.service.d/05-site.conf" not in answer["files"]


def test_a_later_drop_in_of_a_package_is_named_for_a_person(node):
    path = "/usr/lib/systemd/system/ssh.service.d/99-vendor.conf"
    plant(node.root, {path: "[Service]\nLimitMEMLOCK=64K\n"})
    answer = node(*CALLS["memlock"])
    assert [(row["file"], row["line"]) for row in answer["needs_manual_action"]] == [(path, 2)]
    assert path not in answer["files"]


def test_a_hard_limit_of_a_unit_that_is_higher_is_not_lowered(node):
    plant(node.root, {"/etc/systemd/system/ray.service": UNIT + "LimitNOFILE=1024:1048576\n"})
    node(*CALLS["nofile"])
    assert text(node, "/etc/systemd/system/ray.service.d/90-unhang-nofile.conf").endswith(
        "LimitNOFILE=131072:1048576\n"
    )


def test_a_drop_in_of_a_unit_that_is_no_longer_named_goes(node):
    node(*CALLS["memlock"])
    assert node("host_setting", {"setting": "memlock", "value": -1})["files"] == [
        "/etc/systemd/system/ray.service.d/90-unhang-memlock.conf"
    ]


def test_a_unit_known_by_an_alias_gets_one_drop_in_under_its_own_name(node):
    (node.root / "etc/systemd/system/sshd.service").symlink_to("/lib/systemd/system/ssh.service")
    assert not [path for path in node(*CALLS["memlock"])["files"] if "sshd.service" in path]


def test_the_other_spelling_of_a_parameter_is_understood_and_its_neighbours_stay(node):
    answer = node(*CALLS["numa_balancing"])
    assert [(row["file"], row["line"]) for row in answer["lines"]] == [
        ("/etc/sysctl.d/99-site.conf", 1)
    ]
    assert "/etc/sysctl.conf" not in answer["files"]


def test_shared_memory_beyond_the_nodes_memory_is_refused(node):
    refused = node("host_setting", {"setting": "shm_size", "value": 134217729})
    assert "expected at most the 134217728 bytes" in refused["msg"]


def test_words_of_others_that_contradict_are_named_and_ours_stand_behind_them(node):
    answer = node(*CALLS["iommu"])
    assert [row["why"] for row in answer["needs_manual_action"]] == [
        "/etc/default/grub:2: iommu=nopt stands on the command line before iommu=pt, which wins;"
        " take it out"
    ]
    assert text(node, "/etc/default/grub.d/zz-unhang-iommu.cfg").endswith(
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT iommu=pt"\n'
    )


@pytest.mark.parametrize("word", ["iommu=pt; reboot", '"', "a$b", "two words", ""])
def test_what_is_no_word_of_a_command_line_is_refused(node, word):
    assert (
        "expected parameters of a kernel command line"
        in node("boot_parameter", {"name": "iommu", "parameters": [word]})["msg"]
    )


def test_a_node_without_a_known_boot_loader_says_so_and_stays_as_it_is(node):
    (node.root / "usr/sbin/update-grub").unlink()
    before = tree(node.root)
    answer = node(*CALLS["iommu"])
    assert not answer["changed"]
    assert "found neither" in answer["needs_manual_action"][0]["why"]
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
    [
        ("nvidia_parameters", "nvidia.NVreg_EnableGpuFirmware=1", True),
        ("nvidia_parameters", "nvidia.NVreg_EnableGpuFirmware=0", False),
        ("nvidia_parameters", "nvidia_drm.NVreg_EnableGpuFirmware=1", False),
        ("peer_memory", "modprobe.blacklist=nouveau,nvidia_peermem", True),
        ("peer_memory", "module_blacklist=nvidia-peermem", True),
        ("peer_memory", "modprobe.blacklist=nouveau", False),
    ],
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
    [
        ("daemon = 1\nreapply_sysctl = 0\n", {}, True),
        ("reapply_sysctl=False # ours win\n", {}, True),
        ("reapply_sysctl = 1\n", {}, False),
        ("daemon = 1\n", {}, False),
        (
            "reapply_sysctl = 0\n",
            {
                "/etc/tuned/site/tuned.conf": (
                    "[main]\ninclude=throughput-performance\n[sysctl]\nkernel/numa_balancing=0\n"
                )
            },
            False,
        ),
        ("reapply_sysctl = 0\n", {"/etc/tuned/active_profile": "balanced\n"}, False),
    ],
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


def test_debian_knows_the_driver_by_the_name_of_its_file(node):
    plant(
        node.root,
        {
            "/proc/sys/kernel/osrelease": "6.1.0-50-amd64\n",
            "/lib/modules/6.1.0-50-amd64/modules.dep": "updates/dkms/nvidia-current.ko:\n",
        },
    )
    node(*CALLS["nvidia_parameters"])
    lines = text(node, "/etc/modprobe.d/zz-unhang-nvidia.conf").splitlines()[1:]
    assert lines == [
        "options nvidia NVreg_EnableGpuFirmware=0",
        "options nvidia-current NVreg_EnableGpuFirmware=0",
    ]


def test_an_initial_file_system_that_loads_the_driver_is_reported(node):
    plant(node.root, {"/etc/initramfs-tools/modules": "nvidia\n"})
    assert (
        "update-initramfs -u" in node(*CALLS["nvidia_parameters"])["needs_manual_action"][-1]["why"]
    )


@pytest.mark.parametrize(
    ("line", "is_early"),
    [
        ('force_drivers+=" nvidia nvidia_modeset "', True),
        ('omit_drivers+=" nvidia nvidia-drm "', False),
        ("# nvidia", False),
    ],
)
@pytest.mark.parametrize("folder", ["/etc/dracut.conf.d", "/usr/lib/dracut/dracut.conf.d"])
def test_a_drop_in_of_dracut_that_loads_the_driver_is_reported(node, folder, line, is_early):
    plant(node.root, {f"{folder}/99-nvidia.conf": line + "\n"})
    reported = [row["file"] for row in node(*CALLS["nvidia_parameters"])["needs_manual_action"]]
    assert (f"{folder}/99-nvidia.conf" in reported) == is_early


def test_a_module_that_is_kept_from_loading_is_let(node):
    assert [row["text"] for row in node(*CALLS["peer_memory"])["lines"]] == [
        "blacklist nvidia_peermem"
    ]
    assert text(node, "/etc/modules-load.d/unhang-nvidia-peermem.conf").endswith("nvidia-peermem\n")


@pytest.mark.parametrize("value", ["1 2", 'a"b', "#"])
def test_a_parameter_that_no_file_can_carry_is_refused(node, value):
    assert (
        "without blanks or quotes"
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
    [
        ("nofile", 20000, 20000, "20000"),
        ("nofile", 131072, 1048576, "524288"),
        ("memlock", -1, None, "unlimited"),
        ("memlock", 1048576, 2097152, "2048"),
    ],
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


@pytest.mark.parametrize("stays", [False, True])
def test_files_of_a_value_that_cannot_be_set_are_taken_back_unless_only_a_person_can_set_it(
    node, stays
):
    def write(_name, _value):
        if stays:
            return "it stays"
        raise ValueError("the kernel refuses it")

    path, line = "/etc/sysctl.d/zz-unhang-a.b.conf", ("/etc/sysctl.conf", 2, "vm.swappiness = 1")
    plan = plan_own(str(node.root), {path: ["a.b = 1"]}, others=[line])
    setting = Setting("host_tuning_a.b", plan, [Change("sysctl", "a.b", "0", "1")], write, True)
    before = tree(node.root)
    if stays:
        done = apply_setting(str(node.root), "", setting, False)
        assert (done.plan.manual, done.changes) == (["it stays"], [])
        assert text(node, path).endswith("\na.b = 1\n")
        return
    with pytest.raises(ValueError, match="the kernel refuses it"):
        apply_setting(str(node.root), "", setting, False)
    assert [one for one in tree(node.root).items() if one[1] is not None] == [
        one for one in before.items() if one[1] is not None
    ]


@pytest.mark.parametrize("value", [None, "many", "1.5", "-2"])
def test_a_limit_without_a_number_is_refused_and_nothing_is_written(node, value):
    before = tree(node.root)
    assert "value: expected" in node("host_setting", {"setting": "nofile", "value": value})["msg"]
    assert tree(node.root) == before
