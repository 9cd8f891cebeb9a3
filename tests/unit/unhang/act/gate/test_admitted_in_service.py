"""From the gate to the audit: the record that the gate writes, read on the node by the collector,
and judged against what the node is then."""

from __future__ import annotations

import copy
import datetime
import json
import subprocess

import pytest
from fakes.audited import rules_of
from local_fleet import PROJECT

from unhang.act.gate.admission import admission_file, admission_record
from unhang.act.gate.outcome import gate_document
from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.facts.sections.admission import read_admission

FACTS = json.loads((PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())
ADMITTED = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)


def facts_of():
    """A node's facts with what a virtual machine lacks."""
    facts = copy.deepcopy(FACTS)
    facts["sections"]["node"].update(
        machine_id="a" * 32,
        dmi={"vendor": "V", "product": "P", "board": "B", "bios_version": "2.1"},
    )
    facts["sections"]["network"]["rdma"] = [{"name": "mlx5_0", "firmware": "28.39.1002"}]
    for row in facts["sections"]["gpus"]["devices"]:
        row.update(vbios="96.00.99.00.01", inforom="G525.0230.00.03")
    return facts


def in_service(
    root,
    change,
    days=365,
    signature="-----BEGIN SSH SIGNATURE-----\nU1NI\n-----END SSH SIGNATURE-----\n",
):
    """Ids of the admission rules that fail on a node that was admitted and then changed."""
    gate = gate_document(
        "r", {"gpu001": {"outcome": "pass", "reasons": []}}, None, ["critical", "error"]
    )
    text = admission_file(
        json.dumps(admission_record("gpu001", facts_of(), gate, ADMITTED, days)),
        signature,
        "ssh-ed25519 AAAA the gate",
    )
    (root / "etc/unhang").mkdir(parents=True)
    (root / "etc/unhang/admission").write_text("# Written by unhang.\n" + text)
    unread = Unread()
    facts = facts_of()
    change(facts["sections"])
    facts["sections"]["node"]["admission"] = read_admission(Root([str(root)]), unread)
    assert unread.rows == []
    return {rule for rule in rules_of(facts["sections"]) if rule.startswith("admission-")}


def gpu(name, value):
    """A change of the second GPU."""
    return lambda sections: sections["gpus"]["devices"][1].update({name: value})


CHANGES = {
    "admission-of-another-node": lambda sections: sections["node"].update(machine_id="b" * 32),
    "admission-gpus-changed": gpu("uuid", "GPU-new"),
    "admission-gpus-missing": lambda sections: sections["gpus"]["devices"].pop(),
    "admission-driver-changed": lambda sections: sections["driver"]["loaded"].update(
        version="595.1.2"
    ),
    "admission-kernel-changed": lambda sections: sections["kernel"].update(
        release="6.8.0-60-generic"
    ),
    "admission-vbios-changed": gpu("vbios", "96.00.A5.00.01"),
    "admission-inforom-changed": gpu("inforom", "G525.0230.00.05"),
    "admission-bios-changed": lambda sections: sections["node"]["dmi"].update(bios_version="2.3"),
    "admission-nics-changed": lambda sections: sections["network"]["rdma"].append(
        {"name": "mlx5_1", "firmware": "28.39.1002"}
    ),
    "admission-nics-missing": lambda sections: sections["network"]["rdma"].pop(),
    "admission-nic-firmware-changed": lambda sections: sections["network"]["rdma"][0].update(
        firmware="28.40.1"
    ),
}


def nothing(sections):
    """The node is as it was."""


def test_a_node_that_is_as_it_was_has_no_finding(tmp_path):
    assert in_service(tmp_path, nothing) == set()


@pytest.mark.slow
@pytest.mark.parametrize("rule", CHANGES)
def test_each_thing_that_changed_since_is_a_finding_of_its_own(tmp_path, rule):
    assert in_service(tmp_path, CHANGES[rule]) == {rule}


def test_an_unsigned_and_an_expired_record_are_findings(tmp_path):
    assert in_service(tmp_path / "a", nothing, signature="") == {"admission-unsigned"}
    assert in_service(tmp_path / "b", nothing, days=10) == {"admission-expired"}


def test_a_private_key_that_lies_on_the_node_is_a_finding_of_the_audit(tmp_path):
    (tmp_path / "etc/unhang").mkdir(parents=True)
    subprocess.run(
        [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-f",
            str(tmp_path / "etc/unhang/gate_key"),
        ],
        check=True,
    )
    facts = facts_of()
    facts["sections"]["node"]["admission"] = read_admission(Root([str(tmp_path)]), Unread())
    assert {rule for rule in rules_of(facts["sections"]) if rule.startswith("admission-")} == {
        "admission-private-key-on-node"
    }
