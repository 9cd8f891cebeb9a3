"""Plans of the role gpu_driver: packages with their exact versions, pins, what goes, services, and
how modules would be exchanged."""

from __future__ import annotations

import dataclasses

import pytest
from case_rows import case_rows
from driver_cases import JOB, KERNEL, OFFERS, PERSISTENCED, SERVICES, TRIXIE_550, UNLOAD, case, rows

from unhang.act.role_changes.driver_plan import plan_driver
from unhang.act.role_changes.driver_sets import names_to_ask

ROWS = case_rows(__file__)

TESLA = "535.274.02-1~deb13u1"
TESLA_535 = {
    "nvidia-tesla-535-driver": TESLA,
    "nvidia-tesla-535-kernel-dkms": TESLA,
    "libnvidia-tesla-535-ml1": TESLA,
    "nvidia-settings": "550.163.01-1",
}
UBUNTU = {
    "node.os": {"id": "ubuntu", "version_id": "24.04", "family": "debian"},
    "driver.packages": [],
    "driver.install_method": "none",
    "kernel.boot.default_release": "6.8.0-85-generic",
    "kernel.installed": [{"release": "6.8.0-85-generic", "headers": False}],
}
UBUNTU_OFFERS = {
    "nvidia-driver-580-server-open": [
        {"version": "580.95.05-0ubuntu0.24.04.2", "origin": "Ubuntu"}
    ],
    "linux-modules-nvidia-580-server-open-generic": [
        {"version": "6.8.0-85.85+1", "origin": "Ubuntu"}
    ],
    "libnvidia-compute-580-server": [{"version": "580.95.05-0ubuntu0.24.04.2", "origin": "Ubuntu"}],
    "nvidia-fabricmanager-580": [{"version": "580.95.05-0ubuntu0.24.04.2", "origin": "Ubuntu"}],
    "libnvidia-nscq-580": [{"version": "580.95.05-0ubuntu0.24.04.2", "origin": "Ubuntu"}],
}
NVIDIA_OFFERS = {
    name: [{"version": "580.95.05-1", "origin": "NVIDIA"}]
    for name in ("cuda-drivers-580", "nvidia-open-580", "nvidia-fabricmanager-580")
}


def open_580(**more):
    return {"driver": {"version": "580.95.05", "flavour": "open", **more}}


def test_a_driver_of_another_family_comes_down_with_exact_versions_and_the_old_family_goes():
    plan = plan_driver(case())
    assert plan["refusals"] == []
    assert plan["action"] == "install"
    assert plan["install"] == {
        "nvidia-tesla-535-driver": TESLA,
        "nvidia-tesla-535-kernel-dkms": TESLA,
    }
    assert plan["expect"] == {**plan["install"], "libnvidia-tesla-535-ml1": TESLA}
    assert plan["remove"] == [
        "libcuda1",
        "libnvidia-eglcore",
        "libnvidia-ml1",
        "nvidia-alternative",
        "nvidia-driver",
        "nvidia-kernel-dkms",
    ]
    assert plan["pin"]["stanzas"] == [
        {"package": "src:nvidia-graphics-drivers-tesla-535", "version": TESLA}
    ]
    assert plan["proof"] == "executed"
    assert plan["needs_reboot"]


def test_where_sources_are_known_the_old_family_leaves_as_a_whole_and_the_library_is_named():
    old = {
        name: {**row, "source": "nvidia-graphics-drivers"}
        for name, row in case().installed.items()
        if "libcuda" in name or "alternative" in name
    }
    plan = plan_driver(dataclasses.replace(case(), installed={**case().installed, **old}))
    assert plan["remove_sources"] == ["nvidia-graphics-drivers"]
    assert plan["install"]["libnvidia-tesla-535-ml1"] == TESLA
    assert not {"libcuda1", "nvidia-alternative", "glx-alternative-nvidia"} & set(plan["remove"])


def test_a_part_of_the_old_family_that_is_left_is_reason_enough():
    there = rows({**TESLA_535, "libcuda1": "550.163.01-2"})
    finished = case(changes={"driver.packages": there, "driver.loaded.version": "535.274.02"})
    left = {"libcuda1": {**finished.installed["libcuda1"], "source": "nvidia-graphics-drivers"}}
    plan = plan_driver(dataclasses.replace(finished, installed={**finished.installed, **left}))
    assert (plan["action"], plan["remove"], plan["remove_sources"]) == (
        "install",
        [],
        ["nvidia-graphics-drivers"],
    )


def test_a_newer_branch_under_the_same_name_is_not_taken_for_a_lower_bound():
    names = ("nvidia-driver", "nvidia-kernel-dkms", "libnvidia-ml1")
    offers = {
        name: [
            {"version": version, "origin": "x"}
            for version in ("560.35.03-1", "550.163.01-2", "550.90.07-1")
        ]
        for name in names
    }
    older = {"driver.packages": rows(dict.fromkeys(names, "545.23.08-1"))}
    assert (
        plan_driver(case({"driver": {"min": "550.54.14"}}, older, offers))["version"]
        == "550.163.01"
    )


def test_what_the_families_share_is_no_reason_to_change_anything_again():
    there = rows({**TESLA_535, "nvidia-egl-common": "550.163.01-2"})
    finished = case(changes={"driver.packages": there, "driver.loaded.version": "535.274.02"})
    shared = {
        name: {**row, "source": "nvidia-graphics-drivers"}
        for name, row in finished.installed.items()
        if name == "nvidia-egl-common"
    }
    plan = plan_driver(dataclasses.replace(finished, installed={**finished.installed, **shared}))
    assert (plan["action"], plan["remove"], plan["remove_sources"]) == ("none", [], [])


@pytest.mark.parametrize(
    ("flavour", "goes"),
    [("open", ["nvidia-kernel-dkms"]), ("proprietary", ["nvidia-open-kernel-dkms"])],
)
def test_modules_of_the_other_flavour_go(flavour, goes):
    there = {"driver.packages": rows({**TRIXIE_550, "nvidia-open-kernel-dkms": "550.163.01-2"})}
    plan = plan_driver(case({"driver": {"version": "550.163.01", "flavour": flavour}}, there))
    assert (plan["action"], plan["remove"]) == ("install", goes)


def test_ready_built_modules_of_the_wanted_flavour_stay():
    packages = {
        **dict.fromkeys(UBUNTU_OFFERS, "580.95.05-0ubuntu0.24.04.2"),
        "linux-modules-nvidia-580-server-open-6.8.0-85-generic": "6.8.0-85.85+1",
    }
    packages = {
        name: version
        for name, version in packages.items()
        if "fabric" not in name and "nscq" not in name
    }
    plan = plan_driver(
        case(
            open_580(),
            {**UBUNTU, "driver.packages": rows(packages)},
            UBUNTU_OFFERS,
            accept_unproved=True,
        )
    )
    assert (plan["action"], plan["remove"]) == ("none", [])
    other = {**packages, "linux-modules-nvidia-580-server-6.8.0-85-generic": "6.8.0-85.85+1"}
    plan = plan_driver(
        case(
            open_580(),
            {**UBUNTU, "driver.packages": rows(other)},
            UBUNTU_OFFERS,
            accept_unproved=True,
        )
    )
    assert plan["remove"] == ["linux-modules-nvidia-580-server-6.8.0-85-generic"]


def test_a_node_that_is_as_it_should_be_gets_nothing_to_do():
    finished = {"driver.packages": rows(TESLA_535), "driver.loaded.version": "535.274.02"}
    plan = plan_driver(case(changes=finished))
    assert (plan["action"], plan["remove"], plan["refusals"], plan["needs_reboot"]) == (
        "none",
        [],
        [],
        False,
    )
    assert plan["pin"]["stanzas"] == [
        {"package": "src:nvidia-graphics-drivers-tesla-535", "version": TESLA}
    ]


def test_installed_and_not_loaded_is_a_pending_reboot():
    plan = plan_driver(case(changes={"driver.packages": rows(TESLA_535)}))
    assert (plan["action"], plan["needs_reboot"]) == ("none", True)


@pytest.mark.parametrize("what", ["state", "version", "missing"])
def test_a_set_that_is_not_whole_is_installed_again(what):
    packages = rows(TESLA_535)
    if what == "state":
        packages[1]["state"] = "half-configured"
    elif what == "version":
        packages[2]["version"] = "535.261.03-1"
    else:
        del packages[1]
    assert plan_driver(case(changes={"driver.packages": packages}))["action"] == "install"


def test_an_installed_revision_that_the_mirror_dropped_stays():
    older = {
        **TESLA_535,
        "nvidia-tesla-535-driver": "535.274.02-1",
        "nvidia-tesla-535-kernel-dkms": "535.274.02-1",
        "libnvidia-tesla-535-ml1": "535.274.02-1",
    }
    plan = plan_driver(case(changes={"driver.packages": rows(older)}))
    assert plan["action"] == "none"
    assert set(plan["install"].values()) == {"535.274.02-1"}


def test_other_packages_of_the_same_family_are_changed_and_not_removed():
    newer = {
        name: [{"version": "550.200.01-1", "origin": "x"}, *versions]
        for name, versions in OFFERS.items()
        if "tesla" not in name
    }
    plan = plan_driver(case({"driver": {"version": "550.200.01"}}, offers=newer))
    assert plan["install"] == {
        "nvidia-driver": "550.200.01-1",
        "nvidia-kernel-dkms": "550.200.01-1",
    }
    assert plan["remove"] == []
    assert "nvidia-alternative" in plan["allow_remove"]


@pytest.mark.parametrize(
    ("wish", "version", "action"),
    ROWS["test_a_range_keeps_what_is_in_it_and_else_takes_the_newest_of_its_branch"],
)
def test_a_range_keeps_what_is_in_it_and_else_takes_the_newest_of_its_branch(wish, version, action):
    plan = plan_driver(case({"driver": wish}))
    assert (plan["version"], plan["action"], plan["refusals"]) == (version, action, [])


def test_a_node_without_a_driver_gets_one_and_needs_no_reboot_for_it():
    bare = {"driver": {"probe": {"status": "absent"}}}
    plan = plan_driver(case(changes=bare))
    assert plan["refusals"] == []
    assert plan["install"]
    assert plan["remove"] == []
    assert not plan["needs_reboot"]


def test_ready_built_modules_come_in_whatever_version_goes_with_the_kernel_and_need_no_headers():
    plan = plan_driver(case(open_580(), UBUNTU, UBUNTU_OFFERS, accept_unproved=True))
    assert plan["refusals"] == []
    assert plan["install"] == {
        "nvidia-driver-580-server-open": "580.95.05-0ubuntu0.24.04.2",
        "linux-modules-nvidia-580-server-open-generic": "",
    }
    assert plan["pin"]["stanzas"] == [{"package": "*nvidia*-580*", "version": "580.95.05*"}]
    assert not plan["built_here"]


@pytest.mark.parametrize(
    ("release", "names", "stream"),
    [("6.8.0-85-generic", [], "generic"), ("6.8.0-1034-aws", [], "aws")],
)
def test_the_modules_are_those_of_the_nodes_kernels(release, names, stream):
    changes = {
        **UBUNTU,
        "kernel.boot.default_release": release,
        "packages": {"installed": rows(dict.fromkeys(names, "1"))},
    }
    assert f"linux-modules-nvidia-580-server-open-{stream}" in names_to_ask(
        case(open_580(), changes, {})
    )


def test_kernels_of_a_newer_release_take_modules_of_their_stream():
    changes = {
        **UBUNTU,
        "kernel.boot.default_release": "7.0.0-43-generic",
        "packages": {"installed": rows({"linux-image-generic-hwe-24.04": "7.0.0-43"})},
    }
    assert "linux-modules-nvidia-580-server-open-generic-hwe-24.04" in names_to_ask(
        case(open_580(), changes, {})
    )


def test_fabric_manager_comes_in_the_same_transaction_on_a_node_with_nvswitch_alone():
    switched = {**UBUNTU, "fabric_manager.nvswitch_present": True}
    plan = plan_driver(case(open_580(), switched, UBUNTU_OFFERS, accept_unproved=True))
    assert plan["install"]["nvidia-fabricmanager-580"] == "580.95.05-0ubuntu0.24.04.2"
    assert plan["install"]["libnvidia-nscq-580"] == "580.95.05-0ubuntu0.24.04.2"
    assert (
        "nvidia-fabricmanager-580"
        not in plan_driver(case(open_580(), UBUNTU, UBUNTU_OFFERS, accept_unproved=True))["install"]
    )


def test_a_fabric_manager_of_another_version_is_no_settled_node():
    packages = {
        "nvidia-driver-580-server-open": "580.95.05-0ubuntu0.24.04.2",
        "linux-modules-nvidia-580-server-open-generic": "6.8.0-85.85+1",
    }
    packages |= {
        "libnvidia-compute-580-server": "580.95.05-0ubuntu0.24.04.2",
        "libnvidia-nscq-580": "580.95.05-0ubuntu0.24.04.2",
    }
    for fabric, action in (
        ("580.95.05-0ubuntu0.24.04.2", "none"),
        ("580.82.07-0ubuntu0.24.04.1", "install"),
    ):
        changes = {
            **UBUNTU,
            "fabric_manager.nvswitch_present": True,
            "driver.packages": rows({**packages, "nvidia-fabricmanager-580": fabric}),
        }
        assert (
            plan_driver(case(open_580(), changes, UBUNTU_OFFERS, accept_unproved=True))["action"]
            == action
        )


@pytest.mark.parametrize(
    ("fabric", "goes"), [("nvidia-fabricmanager-535", False), ("nvidia-fabricmanager-550", True)]
)
def test_a_fabric_manager_of_the_wanted_branch_changes_and_another_branchs_goes(fabric, goes):
    packages = {
        "nvidia-driver": "535.261.03-1",
        "nvidia-kernel-dkms": "535.261.03-1",
        "libnvidia-ml1": "535.261.03-1",
        fabric: "535.261.03-1",
    }
    names = [*packages, "nvidia-fabricmanager-535"]
    offers = {name: [{"version": "535.309.01-1", "origin": "x"}] for name in names}
    changes = {
        "node.os": {"id": "debian", "version_id": "12", "family": "debian"},
        "driver.packages": rows(packages),
        "fabric_manager.nvswitch_present": True,
    }
    plan = plan_driver(case({"driver": {"version": "535.309.01"}}, changes, offers))
    assert ("nvidia-fabricmanager-535" in plan["install"]) != goes
    assert plan["remove"] == (["nvidia-fabricmanager-550"] if goes else [])


def test_a_policy_that_does_not_match_fabric_manager_leaves_it_alone():
    policy = {**open_580(), "fabric_manager": {"match_driver": False}}
    changes = {**UBUNTU, "fabric_manager.nvswitch_present": True}
    assert not [
        name
        for name in plan_driver(case(policy, changes, UBUNTU_OFFERS, accept_unproved=True))[
            "install"
        ]
        if "fabric" in name
    ]


@pytest.mark.parametrize(
    ("source", "installed", "takes"),
    [
        ("auto", {}, "nvidia-driver-580-server-open"),
        ("auto", {"cuda-drivers-570": "570.124.06-1"}, "nvidia-open-580"),
        ("nvidia", {}, "nvidia-open-580"),
        ("distribution", {"cuda-drivers-570": "570.124.06-1"}, "nvidia-driver-580-server-open"),
    ],
)
def test_a_driver_comes_from_where_the_installed_one_came_from_unless_told(
    source, installed, takes
):
    changes = {
        **UBUNTU,
        "driver.packages": rows(installed),
        "driver.install_method": "packages",
        "kernel.installed": [],
    }
    plan = plan_driver(
        case(
            open_580(),
            changes,
            {**UBUNTU_OFFERS, **NVIDIA_OFFERS},
            accept_unproved=True,
            source=source,
        )
    )
    assert takes in plan["install"]


def test_a_branch_whose_packages_name_none_is_chosen_before_by_its_package_of_pins():
    offers = {"nvidia-open": [{"version": "590.48.01-1", "origin": "NVIDIA"}]}
    plan = plan_driver(
        case(
            {"driver": {"version": "590.48.01", "flavour": "open"}},
            {**UBUNTU, "kernel.installed": []},
            offers,
            accept_unproved=True,
            source="nvidia",
        )
    )
    assert plan["before"] == {"nvidia-driver-pinning-590": ""}
    assert plan["install"] == {"nvidia-open": "590.48.01-1"}


ROCKY = {
    "node.os": {"id": "rocky", "version_id": "9.4", "family": "redhat"},
    "driver.packages": [],
    "driver.install_method": "none",
}
STREAMS = {
    "nvidia-driver": {
        "streams": ["535-dkms", "580-open", "580-dkms"],
        "default": "580-open",
        "enabled": "535-dkms",
    }
}


def red_hat(policy, packages, offered, streams=STREAMS):
    """A case of a node of rpm. offered: {package: versions}."""
    offers = {
        name: [{"version": f"3:{version}-1.el9", "origin": "cuda"} for version in versions]
        for name, versions in offered.items()
    }
    there = rows({name: f"3:{version}-1.el9" for name, version in packages.items()})
    made = case(policy, {**ROCKY, "driver.packages": there}, offers, accept_unproved=True)
    return dataclasses.replace(made, streams=streams, installed={row["name"]: row for row in there})


def test_on_red_hats_a_branch_is_a_module_stream_and_what_is_installed_comes_along():
    new, old = ["580.95.05", "535.261.03"], "535.261.03"
    names = (
        "nvidia-driver",
        "kmod-nvidia-latest-dkms",
        "nvidia-driver-cuda",
        "nvidia-driver-cuda-libs",
    )
    policy = {"driver": {"version": "580.95.05", "flavour": "proprietary"}}
    plan = plan_driver(red_hat(policy, dict.fromkeys(names, old), dict.fromkeys(names, new)))
    assert plan["refusals"] == []
    assert plan["install"] == dict.fromkeys(names, "3:580.95.05-1.el9")
    assert plan["streams"] == {"nvidia-driver": "580-dkms"}
    assert plan["pin"] == {}
    assert plan["remove"] == []
    there = red_hat(policy, dict.fromkeys(names, "580.95.05"), dict.fromkeys(names, new))
    assert plan_driver(there)["action"] == "install"  # another stream is enabled
    enabled = {"nvidia-driver": {**STREAMS["nvidia-driver"], "enabled": "580-dkms"}}
    assert plan_driver(dataclasses.replace(there, streams=enabled))["action"] == "none"


def test_on_red_hats_the_other_flavours_modules_go_and_do_not_come_along():
    there = {
        "nvidia-driver": "580.95.05",
        "kmod-nvidia-latest-dkms": "580.95.05",
        "nvidia-driver-cuda-libs": "580.95.05",
    }
    plan = plan_driver(
        red_hat(
            open_580(),
            there,
            {"nvidia-open": ["580.95.05"], "kmod-nvidia-latest-dkms": ["580.95.05"]},
        )
    )
    assert plan["remove"] == ["kmod-nvidia-latest-dkms"]
    assert "kmod-nvidia-latest-dkms" not in plan["install"]
    assert plan["install"]["nvidia-open"] == "3:580.95.05-1.el9"


@pytest.mark.parametrize(
    ("streams", "refused", "chosen"),
    [
        ({"nvidia-driver": {"streams": ["535-dkms"]}}, ["no-stream"], "nvidia-driver:580-open"),
        ({}, [], None),
    ],
)
def test_on_red_hats_a_stream_that_is_not_there_is_refused_and_flat_repositories_need_none(
    streams, refused, chosen
):
    plan = plan_driver(red_hat(open_580(), {}, {"nvidia-open": ["580.95.05"]}, streams))
    assert [row["id"] for row in plan["refusals"]] == refused
    if chosen:
        assert plan["refusals"][0]["text"].startswith(
            f"gpu001: the check found: on offer: 535-dkms; the role needs module stream {chosen}; "
        )
    else:
        assert plan["streams"] == {}
        assert any(
            "no repository of this node has module streams" in note for note in plan["notes"]
        )


@pytest.mark.parametrize(
    ("architecture", "loaded", "branch", "flavour"),
    ROWS["test_a_flavour_that_the_policy_does_not_name_is_that_of_the_gpus_then_the_loaded_one"],
)
def test_a_flavour_that_the_policy_does_not_name_is_that_of_the_gpus_then_the_loaded_one(
    architecture, loaded, branch, flavour
):
    changes = {
        "gpus.devices": [{"index": 0, "architecture": architecture}],
        "driver.loaded.flavour": loaded,
    }
    assert (
        plan_driver(case({"driver": {"version": f"{branch}.10.01"}}, changes))["flavour"] == flavour
    )


def test_services_are_stopped_in_order_and_fabric_manager_is_left_alone_without_a_reset_to_come():
    plan = plan_driver(case(users={"services": SERVICES, "processes": [PERSISTENCED]}))
    assert plan["refusals"] == []
    assert plan["stop"] == ["nvidia-dcgm.service", "nvidia-persistenced.service"]
    assert not plan["reload"]
    assert plan_driver(case(users={"services": SERVICES}, reboot=True))["stop"] == plan["stop"]


def reload_plan(nvswitch=True, users=None, **options):
    policy = {
        "driver": {"version": "535.274.02", "reload": True},
        "fabric_manager": {"match_driver": False},
    }
    return plan_driver(
        case(
            policy,
            {"fabric_manager.nvswitch_present": nvswitch},
            users={"services": SERVICES, **(users or {})},
            **options,
        )
    )


def test_the_plan_says_that_the_modules_are_exchanged_and_names_no_command():
    plan = reload_plan()
    assert plan["reload"]
    assert not plan["needs_reboot"]
    assert not [
        text
        for text in str(plan).split("'")
        if text.startswith(("systemctl ", "rmmod", "modprobe", "nvidia-smi"))
    ]


def test_an_exchange_that_an_earlier_run_did_not_come_to_is_made_up_for():
    policy = {"driver": {"version": "535.274.02", "reload": True}}
    there = {"driver.packages": rows(TESLA_535)}
    plan = plan_driver(case(policy, there, users={"services": SERVICES}))
    assert (plan["action"], plan["reload"], plan["stop"], plan["needs_reboot"]) == (
        "none",
        True,
        [],
        False,
    )
    busy = plan_driver(case(policy, there, users={"services": SERVICES, "processes": [JOB]}))
    assert (busy["reload"], busy["refusals"], busy["needs_reboot"]) == (False, [], True)
    assert not plan_driver(case(policy, {**there, "driver.loaded.version": "535.274.02"}))["reload"]


def test_modules_are_never_exchanged_under_a_job_nor_when_the_node_reboots_anyway_nor_without_the_policys_word():
    busy = reload_plan(users={"processes": [JOB]}, allow_in_use=True)
    assert (busy["reload"], busy["stop"], busy["needs_reboot"]) == (False, [], True)
    assert "4711" in busy["why_no_reload"]
    assert not reload_plan(reboot=True)["reload"]
    assert not plan_driver(case(users={"services": SERVICES}))["reload"]


def test_modules_are_not_exchanged_on_a_node_whose_gpus_are_partitioned():
    policy = {"driver": {"version": "535.274.02", "reload": True}}
    gpus = [
        {"index": index, "uuid": f"GPU-{index}", "mig": {"enabled": index == 1, "pending": False}}
        for index in range(2)
    ]
    plan = plan_driver(case(policy, {"gpus.devices": gpus}, users={"services": SERVICES}))
    assert (plan["reload"], plan["needs_reboot"], plan["refusals"]) == (False, True, [])
    assert (
        plan["why_no_reload"]
        == "the modules are not exchanged: GPU 1 (GPU-1) is in MIG mode, and its instances would be"
        " gone"
    )
    gpus[1]["mig"] = None
    assert plan_driver(case(policy, {"gpus.devices": gpus}, users={"services": SERVICES}))["reload"]


def test_names_to_ask_are_those_of_the_sets_and_of_what_is_there():
    names = names_to_ask(case())
    assert {
        "nvidia-tesla-535-driver",
        "nvidia-tesla-535-kernel-dkms",
        "libnvidia-tesla-535-ml1",
        "cuda-drivers-535",
        *TRIXIE_550,
    } <= set(names)
    assert names_to_ask(case({})) == []


def test_a_kernel_that_could_not_be_told_is_said():
    plan = plan_driver(case(changes={"kernel.boot.default_release": None}))
    assert any(KERNEL in note for note in plan["notes"])
    assert UNLOAD[-1] == "nvidia"
