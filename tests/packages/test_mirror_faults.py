"""The mirror answers 404, stalls, drops a version or serves a wrong signature: the node keeps its
packages, and the next run succeeds."""

from __future__ import annotations

import json

from debian_node import CONTROL_PACKAGE
from repository import build_package

NAME = CONTROL_PACKAGE


def change(node, version, **options):
    """package_change to a version of the control package. It may run without a possible rollback,
    because none can be prepared for what is new."""
    return node.call(
        "package_change",
        install={NAME: version},
        allow_no_rollback=True,
        root_free_min_mib=20,
        **options,
    )


def test_a_mirror_that_fails_leaves_the_node_as_it_was_and_the_next_run_does_it(deb12, tmp_path):
    assert change(deb12, "1")["changed"]

    deb12.faults.write_text(json.dumps({"missing": f"{NAME}_2"}))
    missing = change(deb12, "2")
    assert missing["stopped_at"] == "fetching"
    assert "404" in missing["msg"]
    assert deb12.installed(NAME) == {NAME: "1"}

    deb12.faults.write_text(json.dumps({"stalls": f"{NAME}_2"}))
    stalled = change(deb12, "2", fetch_timeout_s=5, update_cache=False)
    assert stalled["stopped_at"] == "fetching"
    assert "no answer within 5 s" in stalled["msg"]
    assert deb12.installed(NAME) == {NAME: "1"}

    deb12.faults.write_text(json.dumps({"stalls": "InRelease"}))
    slow = change(deb12, "2", fetch_timeout_s=5)
    assert slow["changed"], slow.get("msg")  # the earlier lists contain the version
    assert "no answer within 5 s" in " ".join(slow["warnings_of_update"])
    assert deb12.installed(NAME) == {NAME: "2"}

    deb12.faults.write_text("{}")
    deb12.repository.add(build_package(tmp_path, NAME, "3"))
    deb12.repository.index()
    deb12.repository.spoil_signature()
    forged = change(deb12, "3")
    assert f"{NAME} 3 is not on offer; on offer are: 2, 1" in forged["refused"][0]
    assert "signature" in " ".join(forged["refused"]).lower()
    assert deb12.installed(NAME) == {NAME: "2"}

    deb12.repository.index()
    assert change(deb12, "3")["changed"]
    assert deb12.installed(NAME) == {NAME: "3"}
    deb12.repository.remove(f"{NAME}_3*")
    deb12.repository.index()
