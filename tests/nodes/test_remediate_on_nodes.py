"""playbooks/remediate.yml on four booted nodes: previews, applies the policy, proves it by the
audit, stops at the first node that is not proved healthy."""

from __future__ import annotations

import json

import audits
import driver_node
from documented_command import as_typed, filled
from four_nodes import NAMES
from hardware import consumer_gpus
from pinned_fleet import PINNED, REMEDIATE, ROLES, findings, proof, remediate, untouched
from playbooks_on_nodes import inventory_for, play, playing, run_typed
from repository import APT, build_package
from role_plays import state_of
from toolchain_packages import offer_toolchain

FIRST, SECOND, THIRD, FOURTH = NAMES
BAD = "driver-545-23-08-p2p-deadlock"
BOOT = "cat /proc/sys/kernel/random/boot_id; stat -c %Z /proc/1"


def stopped_after_the_first(fleet, run, reason):
    assert run.code != 0
    assert reason in run.output
    assert "# disabled by unhang: CUDA_VISIBLE_DEVICES=0" in fleet.shell(
        FIRST, "cat /etc/environment"
    )
    assert untouched(fleet, THIRD, FOURTH) == [THIRD, FOURTH]


def test_a_node_that_goes_off_while_the_first_is_at_work_stops_the_run_before_the_third(pinned):
    with playing(pinned, REMEDIATE, NAMES, {}, unhang_apply=True, unhang_roles=ROLES) as process:
        audits.wait_until(
            lambda: "lock" in pinned.shell(FIRST, "ls /var/lib/unhang 2>/dev/null || true"),
            "the first node is at work",
        )
        pinned.power_off(SECOND)
        code = process.wait(audits.DEADLINE_S)
    output = (pinned.work / "playing.log").read_text()
    assert code != 0
    assert "UNREACHABLE" in output
    assert "# disabled by unhang" in pinned.shell(FIRST, "cat /etc/environment")
    assert untouched(pinned, THIRD, FOURTH) == [THIRD, FOURTH]


def test_a_node_on_which_a_role_fails_stops_the_run_before_the_third(pinned):
    # A lock of another run: the role cannot change the node.
    holder = {
        "schema": "unhang/lock/1",
        "run": "somebody",
        "by": "ops@elsewhere",
        "since": "2026-11-20T07:00:00Z",
        "expires": "2999-01-01T00:00:00Z",
    }
    pinned.plant(SECOND, "/var/lib/unhang/lock.json", json.dumps(holder))
    run = remediate(pinned, unhang_apply=True)
    stopped_after_the_first(pinned, run, "run somebody by ops@elsewhere is at work on it")
    assert f"{SECOND} is not proved healthy" in run.output
    # The operator knows that this run is over: the role takes over its lock and frees it at the
    # end.
    assert (
        remediate(pinned, hosts=[SECOND], unhang_apply=True, unhang_take_over="somebody").code == 0
    )
    pinned.shell(SECOND, "test ! -e /var/lib/unhang/lock.json")


def test_a_node_that_is_not_healthy_afterwards_stops_the_run_before_the_third(pinned):
    pinned.equip(SECOND, consumer_gpus("NVIDIA GeForce RTX 3090", 4, "545.23.08"))
    run = remediate(pinned, unhang_apply=True)
    stopped_after_the_first(pinned, run, f"left: {BAD} (critical)")
    assert proof(pinned, FIRST)["healthy"]
    second = proof(pinned, SECOND)
    assert not second["healthy"]
    assert PINNED in second["gone"]


def test_damage_of_a_run_that_was_not_proved_is_damage_for_the_next_run_too(pinned):
    pinned.equip(FIRST, consumer_gpus("NVIDIA GeForce RTX 3090", 4, "545.23.08"))
    two = [FIRST, SECOND]
    places = {
        "INVENTORY": inventory_for(pinned, two, {}, unhang_come_up_timeout_s=1),
        "HOST": FIRST,
        "ROLE": "gpu_binding",
    }
    command = filled(
        "ansible-playbook playbooks/remediate.yml -i INVENTORY --limit HOST -e unhang_roles=ROLE -e"
        " unhang_apply=true",
        places,
    )
    assert run_typed(pinned, command).code != 0
    pinned.equip(FIRST, consumer_gpus("NVIDIA GeForce RTX 3090", 3, "535.154.05"))
    for _ in range(2):  # the damage is counted in each run, however often the run is repeated
        run = remediate(pinned, hosts=two, unhang_apply=True, unhang_come_up_timeout_s=1)
        assert run.code != 0
        assert "lost: of the 4 GPUs of before, 3 are there" in " ".join(run.output.split())
        assert untouched(pinned, SECOND) == [SECOND]
    pinned.equip(FIRST, consumer_gpus("NVIDIA GeForce RTX 3090", 4, "535.154.05"))
    assert run_typed(pinned, command).code == 0
    pinned.shell(FIRST, "test ! -e /var/lib/unhang/baseline.json")


def test_a_policy_that_brings_in_a_known_bad_driver_is_not_applied(pinned):
    pinned.equip(FIRST, consumer_gpus("NVIDIA GeForce RTX 3090", 4, "535.154.05"))
    pinned.before[FIRST] = state_of(pinned, FIRST)
    pinned.before[SECOND] = state_of(pinned, SECOND)
    places = {
        "inventory/mycluster": inventory_for(
            pinned, [FIRST, SECOND], {"driver": {"version": "545.23.08"}}, unhang_roles=ROLES
        )
    }
    for command in (
        as_typed(
            "ansible-playbook playbooks/remediate.yml -i inventory/mycluster --limit gpu001,gpu002",
            places,
        ),
        as_typed(
            "ansible-playbook playbooks/remediate.yml -i inventory/mycluster --limit gpu001,gpu002"
            " -e unhang_apply=true -e unhang_reboot=true",
            places,
        ),
    ):
        run = run_typed(pinned, command)
        assert run.code != 0
        assert (
            f"the policy of {FIRST} is not applied: Driver 545.23.08 deadlocks NCCL peer-to-peer"
            f" between GPUs ({BAD})" in " ".join(run.output.split())
        )
        assert untouched(pinned, FIRST, SECOND) == [FIRST, SECOND]


BROKEN = {
    "/etc/environment": "SITE=1\nCUDA_VISIBLE_DEVICES=0\n",
    "/etc/nccl.conf": "NCCL_P2P_DISABLE=1\n",
    "/root/.cache/torch_extensions/py310_cu128/fused/lock": "",
}
POLICY = {
    "nccl": {"profile": "single_node_nvlink"},
    "build": {"extensions": True},
    "torch": {"cuda": "12.8"},
    "driver": {"version": "580.159.04", "held": True},
}
FOUND = {
    "nccl_profile": "nccl-p2p-disabled",
    "build_toolchain": "build-compiler-missing",
    "gpu_binding": PINNED,
    "host_tuning": "policy-shm",
    "package_hold": "policy-driver-not-held",
}


def test_what_the_audit_finds_is_gone_after_each_role(fleet, tmp_path):
    """Change and rollback by each role that acts without real drivers and kernels; tests/packages
    and tests/vm have the others."""
    driver = [
        build_package(tmp_path, name, "580.159.04-1") for name in ("nvidia-driver", "libnvidia-ml1")
    ]
    offer_toolchain(fleet, FIRST, tmp_path, *driver)
    fleet.shell(FIRST, f"{APT} install nvidia-driver libnvidia-ml1")
    for path, content in BROKEN.items():
        fleet.plant(FIRST, path, content)
    size = int(fleet.shell(FIRST, "stat -f -c '%b' /dev/shm")) * int(
        fleet.shell(FIRST, "stat -f -c '%S' /dev/shm")
    )
    fleet.undo.callback(fleet.shell, FIRST, f"mount -o remount,size={size} /dev/shm")
    run = remediate(
        fleet,
        {**POLICY, "limits": {"shm_bytes": size + (64 << 20)}},
        hosts=[FIRST],
        unhang_roles=list(FOUND),
        unhang_apply=True,
    )
    assert run.code == 0
    before = json.loads((fleet.work / "runs" / "latest" / "findings-before.json").read_text())[
        "findings"
    ]
    assert set(FOUND.values()) <= {one["rule"] for one in before if one["verdict"] == "fail"}
    assert set(FOUND.values()) <= set(proof(fleet, FIRST)["gone"])
    assert not {rule for _host, rule in findings(fleet)} & set(FOUND.values())
    assert {"nccl_profile", "gpu_binding", "host_tuning", "package_hold"} <= {
        row["role"] for row in saved(fleet)
    }
    back = play(
        fleet,
        "playbooks/rollback.yml",
        [FIRST],
        {},
        unhang_apply=True,
        unhang_state=saved(fleet)[0]["id"],
    )
    assert back.code == 0
    assert [
        fleet.shell(FIRST, f"cat {path}") == content
        for path, content in BROKEN.items()
        if path.startswith("/etc/")
    ] == [True, True]
    assert not fleet.shell(FIRST, "apt-mark showhold")


def saved(fleet):
    """Saved states on the first node, oldest first."""
    folders = fleet.shell(FIRST, "ls -d /var/lib/unhang/states/*/").split()
    return sorted(
        (json.loads(fleet.shell(FIRST, f"cat {folder}/state.json")) for folder in folders),
        key=lambda row: row["number"],
    )


def test_a_driver_is_proved_only_after_the_reboot_that_it_needs(fleet, tmp_path):
    driver_node.prepare(fleet, FIRST, tmp_path)
    policy = {"driver": {"version": driver_node.NEW, "flavour": "proprietary", "held": True}}
    roles = {
        "unhang_roles": ["gpu_driver", "fabric_manager", "package_hold"],
        "unhang_apply": True,
        **driver_node.AS_MACHINE,
    }
    stopped = remediate(fleet, policy, hosts=[FIRST], **roles)
    assert stopped.code != 0
    assert (
        f"a reboot is needed: {FIRST}: driver {driver_node.NEW} is installed and {driver_node.OLD}"
        " is loaded" in " ".join(stopped.output.split())
    )
    assert {"policy-driver-version", "driver-library-mismatch"} <= {
        rule for _host, rule in findings(fleet)
    }
    boot = fleet.shell(FIRST, BOOT)
    done = remediate(fleet, policy, hosts=[FIRST], unhang_reboot=True, **roles)
    fleet.nodes[FIRST].find_leader()
    assert done.code == 0
    assert fleet.shell(FIRST, BOOT) != boot
    assert proof(fleet, FIRST)["healthy"]
    assert "policy-driver-version" in proof(fleet, FIRST)["gone"]
    fleet.shell(FIRST, "test ! -e /var/lib/unhang/lock.json")
