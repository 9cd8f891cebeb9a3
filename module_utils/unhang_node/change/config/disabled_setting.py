"""Finds the settings to disable, with the reader that the audit uses, and plans their files."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...base.root import Root
from ...base.section import Unread
from ...base.untrusted_files import read_mounts_or_none
from ...facts.sections.nccl import read_system_settings
from .disabled_lines import ManualStep
from .own_files import FilePlan, Row, plan_disabled


def plan_disable(rootfs: str, names: Collection[str], settings: Mapping[str, str]) -> FilePlan:
    """FilePlan. names: of the settings to disable; settings: {name: value}: a line with this value
    stays."""
    root, unread = Root([rootfs]), Unread()
    found = [
        Row(path=row.file, number=row.line, name=row.name, source=row.source)
        for row in read_system_settings(root, unread, read_mounts_or_none(root)).settings
        if row.name in names
        and row.value is not None
        and row.line
        and row.value != settings.get(row.name)
    ]
    plan = plan_disabled(rootfs, found, {})
    manual = [
        ManualStep(why=f"{row['field']}: {row['reason']}")
        for row in unread.rows
        if row["field"] == "settings"
    ]
    return plan._replace(manual=[*manual, *plan.manual])
