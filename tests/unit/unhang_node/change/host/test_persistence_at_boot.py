"""A persistence daemon whose unit leaves persistence mode off is reported, because the present
setting ends with the next boot."""

from __future__ import annotations

import pytest
from fakes.node_tree import plant

from unhang_node.change.host.service import PERSISTENCE, why_not_at_boot

UNIT, OVERRIDE = (
    f"/usr/lib/systemd/system/{PERSISTENCE}",
    f"/etc/systemd/system/{PERSISTENCE}.d/override.conf",
)
OFF = (
    "[Service]\nType=forking\nExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced"
    " --no-persistence-mode --verbose\n"
)
ON = OFF.replace("--no-persistence-mode ", "")


@pytest.mark.parametrize(
    ("files", "is_off"),
    [
        ({UNIT: OFF}, True),
        ({UNIT: ON}, False),
        (
            {
                UNIT: OFF,
                OVERRIDE: (
                    "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --verbose\n"
                ),
            },
            False,
        ),
        (
            {
                UNIT: ON,
                OVERRIDE: (
                    "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced"
                    " --no-persistence-mode\n"
                ),
            },
            True,
        ),
        ({UNIT: OFF, OVERRIDE: "[Service]\nRestart=always\n"}, True),
        ({UNIT: OFF.replace(" --no", " \\\n    --no")}, True),
        (
            {
                UNIT: OFF.replace(
                    " --no-persistence-mode",
                    " \\\n# site\n    --verbose \\\n --no-persistence-mode",
                )
            },
            True,
        ),
        (
            {
                UNIT: ON.replace(
                    "[Service]\n",
                    "[Service]\nExecStartPre=/bin/echo \\\nExecStart=/bin/x"
                    " --no-persistence-mode\n",
                )
            },
            False,
        ),
        ({}, False),
    ],
)
def test_the_command_that_counts_decides(tmp_path, files, is_off):
    plant(tmp_path, files)
    why = why_not_at_boot(str(tmp_path), PERSISTENCE)
    assert (why is not None) == is_off
    assert why is None or f"systemctl edit {PERSISTENCE}" in why


def test_other_services_are_not_looked_at(tmp_path):
    plant(tmp_path, {"/usr/lib/systemd/system/other.service": OFF})
    assert why_not_at_boot(str(tmp_path), "other.service") is None
