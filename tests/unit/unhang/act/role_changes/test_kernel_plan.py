"""The kernel that a node gets, its packages and modules, and refusals. Values in, values out."""

from __future__ import annotations

import dataclasses

import pytest

from unhang.act.role_changes.kernel_plan import (
    KernelInputs,
    faults_after,
    flavour_of,
    names_to_ask,
    plan_kernel,
    release_of_package,
)

LOADER = {"loader": "grub", "can_clear_one_shot": True, "why_not": None, "refused": None}
TRIAL = {
    "standing": "none",
    "trial": {},
    "loader": LOADER,
    "space": {"free_mib": 400, "need_mib": 90},
}
DEBIAN = [
    "6.1.0-50-amd64",
    "6.1.0-55-amd64",
    "6.1.0-56-amd64",
    "6.1.0-56-cloud-amd64",
    "6.1.0-56-rt-amd64",
    "6.12.12+bpo-amd64",
]
UBUNTU = [
    "5.15.0-139-generic",
    "5.15.0-140-generic",
    "6.8.0-85-generic",
    "6.8.0-1008-nvidia",
    "6.8.0-1020-azure",
]


def facts(running, installed=(), **more):
    kernel = {
        "release": running,
        "out_of_tree": [],
        "installed": [{"release": one, "image": "/boot/x"} for one in {running, *installed}],
        "dkms": [],
    }
    kernel["boot"] = {"default_release": running}
    node = {
        "os": {"family": "debian"},
        "virtualization": {"kind": "none", "is_container": False},
        "image": {"kind": "installed", "evidence": "root ext4"},
    }
    sections = {
        "kernel": kernel,
        "node": node,
        "gpus": {"devices": []},
        "driver": {"packages": []},
        "packages": {"installed": []},
    }
    for path, value in more.items():
        section, _dot, name = path.partition("__")
        sections[section] = {**sections[section], name: value}
    return sections


def offers(releases, *more):
    names = [f"linux-{kind}-{release}" for release in releases for kind in ("image", "headers")]
    return {name: [{"version": "6.1.192-2", "origin": "mirror"}] for name in [*names, *more]}


def inputs(running, policy, releases=DEBIAN, sections=None, **more):
    there = {
        f"linux-image-{running}": {"version": "1", "state": "installed"},
        **more.pop("packages", {}),
    }
    offered, trial = offers(releases, *more.pop("also", ())), {**TRIAL, **more.pop("trial", {})}
    return KernelInputs(sections or facts(running), policy, offered, there, trial, **more)


CHOICES = [
    ("6.1.0-55-amd64", {"version": "6.1.0-56-amd64"}, DEBIAN, "6.1.0-56-amd64"),
    ("6.1.0-55-amd64", {"version": "6.1.0-56"}, DEBIAN, "6.1.0-56-amd64"),
    ("6.1.0-55-amd64", {"version": "6.1.0-56-cloud-amd64"}, DEBIAN, "6.1.0-56-cloud-amd64"),
    ("6.1.0-56-amd64", {"version": "6.1.0-50-amd64"}, DEBIAN, "6.1.0-50-amd64"),
    ("6.1.0-55-amd64", {"min": "6.1.0-56"}, DEBIAN, "6.1.0-56-amd64"),
    ("6.1.0-50-amd64", {"min": "6.1.0-51"}, DEBIAN, "6.1.0-56-amd64"),
    ("6.1.0-55-amd64", {"min": "6.6"}, DEBIAN, "6.12.12+bpo-amd64"),
    ("6.1.0-55-cloud-amd64", {"min": "6.1.0-56"}, DEBIAN, "6.1.0-56-cloud-amd64"),
    ("5.4.0-216-generic", {"min": "5.15.0"}, UBUNTU, "5.15.0-140-generic"),
    ("5.15.0-139-generic", {"min": "6.8"}, UBUNTU, "6.8.0-85-generic"),
    ("5.15.0-139-generic", {"version": "6.8.0-1008-nvidia"}, UBUNTU, "6.8.0-1008-nvidia"),
    ("6.8.0-1008-azure", {"min": "6.8.0-1010-azure"}, UBUNTU, "6.8.0-1020-azure"),
]


@pytest.mark.parametrize(("running", "policy", "releases", "release"), CHOICES)
def test_the_release_is_the_one_named_or_the_newest_of_the_nearest_series(
    running, policy, releases, release
):
    plan = plan_kernel(inputs(running, policy, releases))
    assert plan["problems"] == []
    assert (plan["action"], plan["release"]) == ("install", release)
    assert set(plan["packages"]) == {f"linux-image-{release}", f"linux-headers-{release}"}


NONE = [
    ("6.1.0-56-amd64", {"version": "6.1.0-56-amd64"}),
    ("6.1.0-56-amd64", {"version": "6.1.0-56"}),
    ("6.1.0-56-amd64", {"min": "5.15"}),
    ("6.1.0-56-amd64", {"held": True}),
    ("6.1.0-56-amd64", {}),
]


@pytest.mark.parametrize(("running", "policy"), NONE)
def test_a_node_that_has_what_the_policy_names_is_left_alone(running, policy):
    plan = plan_kernel(inputs(running, policy))
    assert (plan["action"], plan["problems"]) == ("none", [])


def test_a_node_that_would_boot_another_kernel_next_is_told_to_stay():
    sections = facts("6.1.0-55-amd64", kernel__boot={"default_release": "6.1.0-56-amd64"})
    assert (
        plan_kernel(inputs("6.1.0-55-amd64", {"version": "6.1.0-55-amd64"}, sections=sections))[
            "action"
        ]
        == "select"
    )


def test_a_trial_that_was_cut_off_is_looked_at_again():
    tried = {"standing": "on_trial", "trial": {"release": "6.1.0-56-amd64"}}
    plan = plan_kernel(inputs("6.1.0-56-amd64", {"version": "6.1.0-56-amd64"}, trial=tried))
    assert (plan["action"], plan["release"]) == ("verify", "6.1.0-56-amd64")


def test_what_stands_beside_the_running_kernel_comes_with_the_new_one():
    running, release = "6.8.0-40-generic", "6.8.0-85-generic"
    beside = ("linux-modules-nvidia-535-server-", "linux-modules-extra-", "linux-tools-")
    there = {name + running: {"version": "1", "state": "installed"} for name in beside}
    plan = plan_kernel(
        inputs(
            running,
            {"version": release},
            UBUNTU,
            packages=there,
            also=[name + release for name in beside[:2]],
        )
    )
    assert plan["problems"] == []
    assert {name for name in plan["packages"] if "nvidia" in name or "extra" in name} == {
        name + release for name in beside[:2]
    }
    refused = plan_kernel(inputs(running, {"version": release}, UBUNTU, packages=there))
    assert any(
        "linux-modules-nvidia-535-server-6.8.0-85-generic" in problem
        for problem in refused["problems"]
    )


def test_a_package_that_is_there_is_not_asked_for_again_and_a_half_installed_one_is():
    there = {
        "linux-image-6.1.0-56-amd64": {"version": "1", "state": "half-configured"},
        "linux-headers-6.1.0-56-amd64": {"version": "1", "state": "installed"},
    }
    plan = plan_kernel(inputs("6.1.0-55-amd64", {"version": "6.1.0-56-amd64"}, packages=there))
    assert set(plan["packages"]) == {"linux-image-6.1.0-56-amd64"}


def test_what_is_on_offer_is_listed_when_what_is_asked_for_is_not():
    plan = plan_kernel(inputs("6.1.0-55-amd64", {"version": "6.1.0-99-amd64"}))
    assert plan["action"] == "none"
    assert "have no kernel 6.1.0-99-amd64" in plan["problems"][0]
    assert "6.12.12+bpo-amd64, 6.1.0-56-amd64" in plan["problems"][0]
    assert "cloud-amd64, rt-amd64" in plan["problems"][0]


REFUSED = {
    "container": (
        {"node__virtualization": {"kind": "systemd-nspawn", "is_container": True}},
        {},
        "this is a container (systemd-nspawn)",
    ),
    "stateless": (
        {"node__image": {"kind": "stateless", "evidence": "kernel command line wwinit"}},
        {},
        "put the kernel into that image",
    ),
    "another family": ({"node__os": {"family": "redhat"}}, {}, "family is redhat"),
    "modules not read": ({"kernel__out_of_tree": None}, {}, "run as root"),
    "no loader": (
        {},
        {"loader": {"refused": "the node's disk has no boot loader"}},
        "the node's disk has no boot loader",
    ),
    "cannot clear": (
        {},
        {"loader": {**LOADER, "can_clear_one_shot": False, "why_not": "it lies on /dev/md0"}},
        "it lies on /dev/md0",
    ),
    "cannot tell": (
        {},
        {"loader": {**LOADER, "can_clear_one_shot": None}},
        "environment block is not known",
    ),
    "boot is full": (
        {},
        {"space": {"free_mib": 30, "need_mib": 90}},
        "/boot has 30 MiB free, and one more kernel needs 90 MiB",
    ),
    "boot not seen": (
        {},
        {"space": {"free_mib": None, "need_mib": None, "unread": "denied"}},
        "how much room /boot has could not be read: denied",
    ),
    "fell back": (
        {},
        {
            "standing": "fell_back",
            "why": "it lost 2 GPUs",
            "trial": {"release": "6.1.0-56-amd64", "at": "T"},
        },
        "it lost 2 GPUs; mend it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_node_whose_kernel_cannot_be_tried_safely_is_refused_with_the_reason(name):
    more, trial, problem = REFUSED[name]
    sections = facts("6.1.0-55-amd64", **more)
    plan = plan_kernel(
        inputs("6.1.0-55-amd64", {"version": "6.1.0-56-amd64"}, sections=sections, trial=trial)
    )
    assert problem in plan["problems"][0]


def test_a_kernel_that_fell_back_is_tried_again_when_that_is_asked_for():
    trial = {"standing": "fell_back", "why": "x", "trial": {"release": "6.1.0-56-amd64"}}
    asked = inputs("6.1.0-55-amd64", {"version": "6.1.0-56-amd64"}, trial=trial)
    assert plan_kernel(asked)["problems"]
    assert plan_kernel(dataclasses.replace(asked, retry=True))["problems"] == []
    assert (
        plan_kernel(dataclasses.replace(asked, desired={"version": "6.12.12+bpo-amd64"}))[
            "problems"
        ]
        == []
    )


def test_a_kernel_that_is_on_the_disk_needs_no_room_in_boot():
    sections = facts("6.1.0-55-amd64", ["6.1.0-56-amd64"])
    full = {"space": {"free_mib": 1, "need_mib": 90}}
    assert (
        plan_kernel(
            inputs("6.1.0-55-amd64", {"version": "6.1.0-56-amd64"}, sections=sections, trial=full)
        )["problems"]
        == []
    )


def test_jobs_on_the_gpus_keep_the_node_from_being_rebooted_and_not_from_being_prepared():
    busy = [{"index": 0, "uuid": "GPU-0", "processes": [{"pid": 4242, "user": "alice"}]}]
    asked = inputs(
        "6.1.0-55-amd64",
        {"version": "6.1.0-56-amd64"},
        sections=facts("6.1.0-55-amd64", gpus__devices=busy),
    )
    assert plan_kernel(asked)["problems"] == []
    assert (
        "pid 4242 of alice on GPU 0"
        in plan_kernel(dataclasses.replace(asked, reboot=True))["problems"][0]
    )
    assert plan_kernel(dataclasses.replace(asked, reboot=True, busy=True))["problems"] == []


def test_modules_and_gpus_of_now_are_what_the_new_kernel_has_to_have():
    devices = [
        {"index": 0, "uuid": "GPU-0"},
        {"index": 1, "uuid": None, "pci_address": "0000:3b:00.0"},
        {"index": 2, "uuid": "GPU-2", "error": "lost"},
    ]
    sections = facts(
        "6.1.0-55-amd64", gpus__devices=devices, kernel__out_of_tree=["nvidia", "gdrdrv"]
    )
    plan = plan_kernel(
        inputs(
            "6.1.0-55-amd64",
            {"version": "6.1.0-56-amd64"},
            sections=sections,
            without_modules=("gdrdrv",),
        )
    )
    assert plan["gpus"] == ["0000:3b:00.0", "GPU-0"]
    assert plan["modules"] == ["nvidia"]


def test_headers_can_be_left_out():
    plan = plan_kernel(inputs("6.1.0-55-amd64", {"version": "6.1.0-56-amd64"}, headers=False))
    assert set(plan["packages"]) == {"linux-image-6.1.0-56-amd64"}


AFTER = [
    ({}, []),
    (
        {"kernel__release": "6.1.0-50-amd64"},
        ["kernel 6.1.0-50-amd64 runs, not 6.1.0-56-amd64"],
    ),
    ({"gpus__devices": [{"uuid": "GPU-0"}]}, ["GPU-1"]),
    ({"gpus__devices": [{"uuid": "GPU-0"}, {"uuid": "GPU-1", "error": "GPU is lost"}]}, ["GPU-1"]),
    ({"gpus__devices": None}, ["GPU-0, GPU-1"]),
    ({"kernel__out_of_tree": []}, ["nvidia"]),
    ({"driver__mismatch": True, "driver__mismatch_text": "535 against 580"}, ["535 against 580"]),
]


@pytest.mark.parametrize(("more", "problems"), AFTER)
def test_after_the_boot_everything_of_before_has_to_be_there(more, problems):
    sections = facts(
        "6.1.0-56-amd64",
        **{
            "gpus__devices": [{"uuid": "GPU-0"}, {"uuid": "GPU-1"}],
            "kernel__out_of_tree": ["nvidia"],
            **more,
        },
    )
    faults = faults_after(
        KernelInputs(sections, {}),
        {"release": "6.1.0-56-amd64", "modules": ["nvidia"], "gpus": ["GPU-0", "GPU-1"]},
    )
    assert len(faults) == len(problems)
    assert all(part in fault for part, fault in zip(problems, faults, strict=True))


@pytest.mark.parametrize(
    ("release", "flavour"),
    [
        ("6.1.0-56-cloud-amd64", "cloud-amd64"),
        ("6.8.0-1008-nvidia", "nvidia"),
        ("6.12.12+bpo-amd64", "amd64"),
        ("5.14.0-503.el9.x86_64", ""),
        ("6.8.0", ""),
    ],
)
def test_a_flavour_is_what_follows_the_numbers(release, flavour):
    assert flavour_of(release) == flavour


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("linux-image-6.1.0-56-amd64", "6.1.0-56-amd64"),
        ("linux-image-6.12.12+bpo-cloud-amd64", "6.12.12+bpo-cloud-amd64"),
        ("linux-image-unsigned-6.8.0-1008-nvidia", "6.8.0-1008-nvidia"),
        ("linux-image-6.1.0-56-amd64-unsigned", None),
        ("linux-image-6.1.0-56-amd64-dbg", None),
        ("linux-image-amd64", None),
        ("linux-image-generic-hwe-22.04", None),
    ],
)
def test_a_package_name_gives_the_release_that_it_holds(name, release):
    assert release_of_package(name) == release


def test_what_is_asked_for_covers_the_packages_beside_the_running_kernel():
    sections = facts(
        "6.8.0-40-generic", packages__installed=[{"name": "linux-modules-extra-6.8.0-40-generic"}]
    )
    sections["driver"] = {
        "packages": [{"name": "linux-modules-nvidia-535-server-6.8.0-40-generic"}]
    }
    asked = names_to_ask(sections)
    assert {
        "linux-image-[0-9]*",
        "linux-modules-extra-*",
        "linux-modules-nvidia-535-server-*",
        "linux-*-6.8.0-40-generic",
    } <= set(asked)
