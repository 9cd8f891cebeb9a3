"""Units of systemd that failed or that it restarts repeatedly, read from the real systemd of a
booted node."""

from __future__ import annotations

import pytest

NODE = "gpu002"
UNITS = {
    "broken-mount.service": "",
    "flapping-agent.service": "-p Restart=always -p RestartSec=600 ",
}


@pytest.fixture
def troubled(fleet):
    for name, properties in UNITS.items():
        fleet.shell(
            NODE,
            f"systemd-run -q --unit={name} {properties}false",
            undo=f"systemctl stop {name}; systemctl reset-failed {name} || :",
        )
    assert (
        fleet.shell(
            NODE,
            "for i in $(seq 100); do systemctl -q is-failed broken-mount && break; sleep 0.1; done;"
            " systemctl show -P SubState flapping-agent",
        ).strip()
        == "auto-restart"
    )
    return fleet


def node_section(fleet, user):
    return fleet.audit(groups={"training": [NODE]}, variables={"ansible_user": user}).node(NODE)[
        "facts"
    ]["sections"]["node"]


def test_failed_and_restarting_units_are_read_from_systemd_as_root(troubled):
    rows = {row["name"]: row["state"] for row in node_section(troubled, "root")["troubled_units"]}
    assert {name: rows.get(name) for name in UNITS} == {
        "broken-mount.service": "failed",
        "flapping-agent.service": "restarting",
    }


def test_systemd_does_not_answer_another_user(troubled):
    assert node_section(troubled, "auditor")["troubled_units"] is None
