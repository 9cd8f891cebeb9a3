"""The role kernel on a booted node that is a container: it refuses and writes nothing. tests/vm
tests it on a machine."""

from __future__ import annotations

from role_plays import play_role, state_of


def own_files(fleet, name):
    return [line for line in state_of(fleet, name).splitlines() if "/var/lib/unhang" not in line]


def test_a_container_is_refused_because_its_kernel_is_the_machines(fleet):
    before = own_files(fleet, "gpu001")
    refused = play_role(
        fleet,
        "kernel",
        "gpu001",
        {"kernel": {"min": "99.0"}},
        kernel_reboot=True,
        kernel_update_cache=False,
    )
    assert refused.code != 0
    assert "this is a container (systemd-nspawn)" in refused.output
    assert own_files(fleet, "gpu001") == before


def test_without_a_kernel_in_the_policy_nothing_happens(fleet):
    before = own_files(fleet, "gpu001")
    played = play_role(fleet, "kernel", "gpu001", {}, kernel_reboot=True, kernel_update_cache=False)
    assert (played.code, played.changed) == (0, {"gpu001": 0})
    assert "names no kernel.version and no kernel.min" in played.output
    assert own_files(fleet, "gpu001") == before
