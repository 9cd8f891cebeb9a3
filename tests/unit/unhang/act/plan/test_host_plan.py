"""One host: its remedies with versions before and after, what they disrupt, and why they are
refused."""

from __future__ import annotations

import copy

import pytest

from unhang.act.plan.disruption import kind_of
from unhang.act.plan.host_plan import plan_for_host
from unhang.act.plan.plan_document import Job, Plan, PlanLimits, PlannedRun, Reboot, Wave
from unhang.act.plan.plan_table import render_plan_table
from unhang.act.plan.role_coverage import remedying_of
from unhang.core.run.documents import NodeDocument, to_fragment
from unhang.judge.rules.compiled_catalogue import load_catalogue

DAY = "2026-11-20"
REMEDYING = remedying_of(load_catalogue(), DAY)
OK = {"probe": {"status": "ok"}}
WAVES = (Wave("canary 1", ("gpu1",)),)
SECTIONS = {
    "node": {
        **OK,
        "boot_id": "boot-1",
        "os": {"id": "ubuntu", "version_id": "22.04", "family": "debian"},
        "image": {"kind": "installed"},
    },
    "kernel": {
        **OK,
        "release": "5.4.0-172-generic",
        "out_of_tree": ["nvidia"],
        "boot": {"can_clear_one_shot": True},
    },
    "driver": {
        **OK,
        "loaded": {"is_loaded": True, "version": "545.23.08", "flavour": "proprietary"},
        "install_method": "packages",
    },
    "gpus": {
        **OK,
        "count": 2,
        "model": "NVIDIA GeForce RTX 3090",
        "devices": [{"index": 0, "processes": []}, {"index": 1, "processes": []}],
    },
    "interconnect": {**OK, "iommu": {"mode": "translated"}},
}


def finding(rule, remedy):
    return {"rule": rule, "severity": "error", "scope": "node", "where": {}, "remedy": remedy}


DRIVER = finding(
    "p2p-deadlock", {"role": "gpu_driver", "policy": {"driver": {"min": "580.65.06", "held": True}}}
)
KERNEL = finding("kernel-below-5-5", {"role": "kernel", "policy": {"kernel": {"min": "5.15.0"}}})
IOMMU = finding(
    "iommu-translates", {"role": "host_tuning", "policy": {"host": {"iommu": "passthrough"}}}
)
NUMA = finding(
    "numa-balancing-on", {"role": "host_tuning", "policy": {"host": {"numa_balancing": False}}}
)
LINK = finding("nvlink-down", {"person": "have the board serviced"})


def planned(*findings, policy=None, status="ok", change=None):
    sections = copy.deepcopy(SECTIONS)
    if change:
        change(sections)
    typed = to_fragment(sections) if status == "ok" else None
    node = NodeDocument(
        "gpu1",
        ("training",),
        policy or {},
        status,
        None if status == "ok" else "No route to host",
        typed,
    )
    return plan_for_host(node, findings, REMEDYING)


def reboots(*findings, **more):
    return [(one.step, one.why) for one in planned(*findings, **more).reboots]


def test_versions_stand_before_and_after():
    entry = planned(KERNEL, DRIVER)
    assert [(one.role, one.before, one.after) for one in entry.remedies] == [
        ("kernel", "5.4.0-172-generic", "5.15.0 or newer"),
        ("gpu_driver", "545.23.08", "580.65.06 or newer"),
    ]
    assert entry.boot_id == "boot-1"
    assert entry.config_hash.startswith("sha256:")


def test_a_driver_takes_one_reboot_and_one_more_to_go_back():
    assert planned(DRIVER).reboots == (
        Reboot("apply", "the new driver is loaded"),
        Reboot("rollback", "back to what was loaded before"),
    )


def test_all_roles_share_one_reboot_beside_a_kernels_trial():
    assert reboots(KERNEL, DRIVER, IOMMU) == [
        ("trial", "trial boot of kernel 5.15.0 or newer"),
        ("apply", "the new driver is loaded; host.iommu counts from the next boot on"),
        ("rollback", "back to kernel 5.4.0-172-generic, after the trial or by a rollback"),
        ("rollback", "back to what was loaded before"),
    ]


def test_a_kernel_alone_needs_no_reboot_but_its_trial():
    assert [step for step, _ in reboots(KERNEL)] == ["trial", "rollback"]


def test_settings_need_no_reboot():
    assert reboots(NUMA) == []


@pytest.mark.parametrize(
    ("one", "change"),
    [
        (DRIVER, lambda now: now["driver"].update(loaded={"is_loaded": False})),
        (IOMMU, lambda now: now["interconnect"].update(iommu={"mode": "passthrough"})),
        (
            IOMMU,
            lambda now: now["node"].update(virtualization={"is_vm": True, "is_container": False}),
        ),
    ],
)
def test_where_nothing_is_loaded_or_changed_no_reboot_is_counted(one, change):
    assert reboots(one, change=change) == []


def test_nouveau_has_to_go_with_a_reboot():
    change = lambda now: now["driver"].update(loaded={"is_loaded": False}, nouveau_loaded=True)  # noqa: E731
    assert [step for step, _ in reboots(DRIVER, change=change)] == ["apply", "rollback"]


def test_a_process_on_several_gpus_is_one_job():
    process = {"pid": 7, "user": "ada", "command": "python"}
    entry = planned(
        LINK,
        change=lambda now: now["gpus"].update(
            devices=[{"index": 0, "processes": [process]}, {"index": 1, "processes": [process]}]
        ),
    )
    assert entry.jobs == (Job(7, "ada", "python", (0, 1)),)


def test_jobs_that_could_not_be_read_are_not_none():
    assert planned(LINK).jobs == ()
    assert (
        planned(
            LINK, change=lambda now: now["gpus"].update(devices=[{"index": 0}, {"index": 1}])
        ).jobs
        is None
    )
    assert planned(LINK, change=lambda now: now.pop("gpus")).jobs is None


def test_what_only_a_person_repairs_is_in_no_wave_and_named():
    entry = planned(LINK)
    assert (entry.remedies, entry.reboots, entry.refused) == ((), (), ())
    assert [(one.rule, one.what) for one in entry.person] == [
        ("nvlink-down", "have the board serviced")
    ]


@pytest.mark.parametrize(
    ("severity", "named"), [("critical", True), ("error", True), ("warning", True), ("info", False)]
)
def test_warnings_and_above_are_work_for_a_person_and_remarks_are_not(severity, named):
    assert bool(planned({**LINK, "severity": severity}, DRIVER).person) == named


def test_where_several_versions_are_possible_the_plan_says_how_to_pin_one():
    def shown(*findings, **more):
        plan = Plan(
            PlannedRun("r", "2026-11-20T00:00:00Z", None),
            DAY,
            PlanLimits(1, 0, 1),
            (planned(*findings, **more),),
            WAVES,
            (),
        )
        return " ".join(render_plan_table(plan).split())

    open_ended = shown(DRIVER)
    assert (
        "choice 580.65.06 or newer, or a version that you pin: set driver.version in unhang_policy"
        in open_ended
    )
    assert "unhang explain p2p-deadlock" in open_ended
    assert "choice" not in shown(DRIVER, policy={"driver": {"version": "580.95.05"}})


def test_a_policy_that_would_bring_in_a_known_fault_refuses_the_host():
    entry = planned(
        DRIVER,
        NUMA,
        LINK,
        policy={"driver": {"version": "545.23.08"}, "host": {"numa_balancing": False}},
    )
    assert entry.remedies == ()
    shown = "\n".join(one.why for one in entry.refused)
    assert "driver-545-23-08-p2p-deadlock" in shown
    assert "not applied: host_tuning (for numa-balancing-on)" in shown
    assert "unhang_policy wants driver.version: 545.23.08" in shown
    assert [one.rule for one in entry.person] == ["nvlink-down"]


DEADLOCK = finding("driver-545-23-08-p2p-deadlock", DRIVER["remedy"])


@pytest.mark.parametrize("version", ["535.309.01", "535.154.05"])
def test_a_pin_of_the_inventory_that_clears_a_finding_is_its_remedy_whatever_the_rule_proposes(
    version,
):
    policy = {"driver": {"version": version, "flavour": "proprietary", "held": True}}
    entry = planned(DEADLOCK, NUMA, policy=policy)
    assert [(one.role, one.because, one.before, one.after) for one in entry.remedies] == [
        ("gpu_driver", (DEADLOCK["rule"],), "545.23.08", version),
        ("host_tuning", ("numa-balancing-on",), None, None),
    ]
    assert entry.policy["driver"] == policy["driver"]
    assert (entry.refused, entry.person) == ((), ())


@pytest.mark.parametrize(
    "policy",
    [
        {"driver": {"max": "550.1"}},
        {"driver": {"version": "545.23.8"}},
        {"driver": {"version": "545.23.08"}},
    ],
)
def test_what_the_inventory_pins_is_no_remedy_where_the_finding_would_stay(policy):
    entry = planned(DEADLOCK, policy=policy)
    assert entry.remedies == ()
    assert any(
        "driver-545-23-08-p2p-deadlock wants driver.min: 580.65.06, and unhang_policy wants"
        in one.why
        for one in entry.refused
    )


def test_a_pin_says_nothing_of_a_rule_that_reads_what_it_does_not_bring():
    wrong = finding("driver-545-from-ubuntu", DRIVER["remedy"])
    entry = planned(wrong, policy={"driver": {"version": "535.309.01"}})
    assert entry.remedies == ()


def test_a_policy_that_cannot_be_used_refuses_the_host():
    entry = planned(NUMA, policy={"driver": {"versoin": "580.1"}})
    assert entry.remedies == ()
    assert "policy-not-usable" in entry.refused[0].why


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda now: now["driver"].update(install_method="gpu_operator"), "NVIDIA's GPU Operator"),
        (lambda now: now["driver"].update(install_method="runfile"), ".run installer"),
        (
            lambda now: now["node"].update(
                image={"kind": "stateless", "evidence": "root is an overlay"}
            ),
            "a stateless image",
        ),
    ],
)
def test_a_driver_that_is_not_ours_to_change_is_refused_alone(change, says):
    entry = planned(DRIVER, NUMA, change=change)
    assert entry.roles == ["host_tuning"]
    assert entry.policy == {"host": {"numa_balancing": False}}
    (refused,) = entry.refused
    assert refused.why.startswith("role gpu_driver (for p2p-deadlock): ")
    assert says in refused.why


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda now: now["kernel"].update(
                boot={"can_clear_one_shot": False, "why_not": "/boot is on LVM"}
            ),
            "/boot is on LVM",
        ),
        (
            lambda now: now["node"].update(virtualization={"is_container": True, "kind": "docker"}),
            "this is a container",
        ),
        (lambda now: now["node"]["os"].update(family="redhat"), "family is redhat, not debian"),
    ],
)
def test_a_kernel_that_is_not_ours_to_choose_is_refused_alone(change, says):
    entry = planned(KERNEL, NUMA, change=change)
    assert entry.roles == ["host_tuning"]
    assert entry.refused[0].why.startswith("role kernel (for kernel-below-5-5): ")
    assert says in entry.refused[0].why


def test_a_node_that_was_not_read_is_refused():
    entry = planned(NUMA, status="unreachable")
    assert (entry.remedies, entry.boot_id, entry.config_hash, entry.jobs) == ((), None, None, None)
    assert "unreachable, No route to host; not applied: host_tuning" in entry.refused[0].why


def test_a_canary_stands_for_nodes_of_its_hardware_and_image():
    typed = to_fragment(SECTIONS)
    other = copy.deepcopy(SECTIONS)
    other["node"] |= {"boot_id": "boot-2", "hostname": "gpu2"}
    assert kind_of(to_fragment(other)) == kind_of(typed)
    other["kernel"]["release"] = "6.8.0-1-generic"
    assert kind_of(to_fragment(other)) != kind_of(typed)
