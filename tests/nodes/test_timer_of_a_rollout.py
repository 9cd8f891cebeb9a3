"""The units of the page that go on with a rollout, under systemd itself: they run while nodes wait,
and disable themselves when the command ends otherwise."""

from __future__ import annotations

import audits

NODE, TIMER = "gpu001", "unhang-remediate.timer"
PAGE = (audits.PROJECT / "docs" / "operations.md").read_text()
# ends twice as while nodes wait for jobs
SAYS = "echo x >>/tmp/said; exit $([ $(wc -l </tmp/said) -lt 3 ] && echo 3 || echo 1)\n"


def test_the_timer_of_the_page_ends_when_no_node_waits(fleet):
    shown = PAGE.partition("# /etc/systemd/system/unhang-remediate.service")[2].partition("```")[0]
    service, _, timer = shown.partition(f"# /etc/systemd/system/{TIMER}")
    service = service.replace(
        "/srv/unhang/.venv/bin/unhang remediate runs/ID --apply", "/bin/sh /said"
    )
    service = service.replace("User=unhang\nWorkingDirectory=/srv/unhang\n", "User=auditor\n")
    fleet.plant(NODE, "/said", SAYS)
    fleet.plant(NODE, "/etc/systemd/system/unhang-remediate.service", service)
    timer = timer.replace("10min", "1s").replace("[Timer]", "[Timer]\nAccuracySec=1s")
    fleet.plant(NODE, f"/etc/systemd/system/{TIMER}", timer)
    fleet.shell(NODE, f"systemctl daemon-reload; systemctl enable --now {TIMER}", "rm /tmp/said")
    ended = f"systemctl is-enabled {TIMER} || true"
    audits.wait_until(lambda: fleet.shell(NODE, ended).strip() == "disabled", "it ends", 300)
    assert fleet.shell(NODE, f"wc -l </tmp/said; systemctl is-active {TIMER} || true").split() == [
        "3",
        "inactive",
    ]
