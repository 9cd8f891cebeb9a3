"""Admission records with the real ssh-keygen: written for nodes that passed; each reason for which
a record is not valid is reported as its own state."""

from __future__ import annotations

import copy
import json
import subprocess

import pytest
from case_rows import case_rows
from documented_command import as_typed
from local_fleet import PROJECT

from unhang.act.gate.admission import admission_file
from unhang.act.gate.outcome import SmokeResults, gate_document
from unhang.act.gate.records import write_records
from unhang.cli import main
from unhang.core.schemas.check import check_schema
from unhang_node.facts.parse.admission import parse_admission

ROWS = case_rows(__file__)

FACTS = json.loads((PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())
SMOKE = {
    "verdict": "pass",
    "world_size": 8,
    "hosts": [{"host": "gpu001"}],
    "collectives": [
        {"op": "all_reduce", "size_bytes": 1 << 30, "busbw_gb_s": 478.1, "measures": "bandwidth"},
        {"op": "broadcast", "measures": "correctness"},
    ],
}


def facts_of(machine_id="0123456789abcdef0123456789abcdef"):
    """A node's facts, with a machine id and one RDMA device."""
    facts = copy.deepcopy(FACTS)
    facts["sections"]["node"]["machine_id"] = machine_id
    facts["sections"]["network"]["rdma"] = [{"name": "mlx5_0", "firmware": "28.39.1002"}]
    for row in facts["sections"]["gpus"]["devices"]:
        row["serial"] = f"165000000000{row['index']}"
    return facts


def new_key(folder, name):
    """A key pair of this name."""
    key = folder / name
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "the gate", "-f", str(key)],
        check=True,
    )
    return key


@pytest.fixture
def gated(tmp_path):
    """A run whose gate passed gpu001 and failed gpu002, and the gate's key."""
    run = tmp_path / "runs" / "20261120T175745Z-c128066de5"
    (run / "nodes").mkdir(parents=True)
    times = {"started": "2026-11-20T17:57:45Z", "finished": "2026-11-20T17:58:00Z"}
    (run / "run.json").write_text(
        json.dumps(
            {"schema": "unhang/run/1", "id": run.name, "hosts": ["gpu001", "gpu002"], **times}
        )
    )
    for host in ("gpu001", "gpu002"):
        node = {
            "schema": "unhang/node/1",
            "host": host,
            "groups": [],
            "policy": {},
            "status": "ok",
            "message": None,
            "facts": facts_of(),
        }
        (run / "nodes" / f"{host}.json").write_text(json.dumps(node))
    decisions = {
        "gpu001": {"outcome": "pass", "reasons": []},
        "gpu002": {"outcome": "fail", "reasons": ["alone: exit code 7"]},
    }
    document = gate_document(
        run.name, decisions, None, ["critical"], SmokeResults({"gpu001": SMOKE}, None)
    )
    assert list(check_schema(document, "gate-1")) == []
    (run / "gate.json").write_text(json.dumps(document))
    return run, new_key(tmp_path, "gate_key")


def verified(capsys, record, key, *options):
    """(exit code, state, reasons) of `unhang preprovision --verify`."""
    capsys.readouterr()
    code = main(
        [
            "preprovision",
            "--verify",
            str(record),
            "--key",
            f"{key}.pub",
            "--format",
            "json",
            *map(str, options),
        ]
    )
    found = json.loads(capsys.readouterr().out)
    return code, found["state"], found["why"]


def signed(gated, days=365):
    """The file of gpu001."""
    run, key = gated
    [path] = write_records(run, key, days)
    return path


def test_only_nodes_that_passed_get_a_record_and_it_is_as_its_schema_says(gated):
    path = signed(gated)
    assert path.name == "gpu001"
    record = parse_admission(path.read_text())["record"]
    assert list(check_schema(record, "admission-1")) == []
    assert (record["admitted_at"], record["expires"]) == ("2026-11-20T17:58:00Z", "2027-11-20")
    assert record["results"]["alone"]["bandwidth"] == [
        {"op": "all_reduce", "size_bytes": 1 << 30, "busbw_gb_s": 478.1}
    ]
    assert record["limits"]["severities"] == ["critical"]
    assert [row["uuid"] for row in record["gpus"]] == [
        row["uuid"] for row in FACTS["sections"]["gpus"]["devices"]
    ]
    assert [row["serial"] for row in record["gpus"]] == [
        f"165000000000{index}" for index in range(8)
    ]


def test_the_file_holds_the_public_key_and_nothing_of_the_private_one(gated):
    text = signed(gated).read_text()
    assert f"{gated[1]}.pub" and (gated[1].with_suffix(".pub")).read_text().split()[1] in text
    secret = gated[1].read_text().splitlines()[1:-1]
    assert all(line not in text for line in secret)
    assert "PRIVATE" not in text


def test_a_good_record_is_good_with_and_without_the_nodes_facts(gated, capsys, tmp_path):
    run, key = gated
    path = signed(gated)
    assert verified(capsys, path, key, "--now", "2026-12-01") == (0, "good", [])
    assert verified(
        capsys, path, key, "--now", "2026-12-01", "--facts", run / "nodes" / "gpu001.json"
    ) == (0, "good", [])
    (tmp_path / "facts.json").write_text(json.dumps(facts_of()))
    assert verified(
        capsys, path, key, "--now", "2026-12-01", "--facts", tmp_path / "facts.json"
    ) == (0, "good", [])


def test_the_commands_of_the_page_tell_a_good_record(gated, capsys):
    run, key = gated
    places = {"runs/latest/admission/gpu017": signed(gated, 3650), "~/gate_key.pub": f"{key}.pub"}
    node = {"runs/20261220T080000Z-0123456789/nodes/gpu017.json": run / "nodes" / "gpu001.json"}
    for argv in (
        as_typed(
            "unhang preprovision --verify runs/latest/admission/gpu017 --key ~/gate_key.pub", places
        ),
        as_typed(
            "unhang preprovision --verify runs/latest/admission/gpu017 --key ~/gate_key.pub --facts"
            " runs/20261220T080000Z-0123456789/nodes/gpu017.json",
            {**places, **node},
        ),
    ):
        assert main(argv[1:]) == 0
        assert "good" in capsys.readouterr().out


def test_a_line_that_says_who_wrote_the_file_on_the_node_takes_nothing_from_it(gated, capsys):
    path = signed(gated)
    path.write_text("# Written by unhang.\n" + path.read_text())
    assert verified(capsys, path, gated[1], "--now", "2026-12-01")[1] == "good"


def unsigned(path, tmp_path):
    found = parse_admission(path.read_text())
    path.write_text(admission_file(found["line"], "", found["key"]))


def with_another_driver(path, tmp_path):
    text = path.read_text()
    path.write_text(text.replace(parse_admission(text)["record"]["versions"]["driver"], "999.99"))


def with_a_broken_signature(path, tmp_path):
    text = path.read_text()
    middle = text.index("-----BEGIN SSH SIGNATURE-----") + 80
    path.write_text(text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :])


def signed_by_somebody_else(path, tmp_path):
    found = parse_admission(path.read_text())
    run = path.parent.parent
    write_records(run, new_key(tmp_path, "other_key"), 3650)
    assert parse_admission(path.read_text())["key"] != found["key"]


def with_a_signature_for_another_purpose(path, tmp_path):
    found = parse_admission(path.read_text())
    argv = ["ssh-keygen", "-Y", "sign", "-n", "file", "-f", str(tmp_path / "gate_key")]
    armoured = subprocess.run(
        argv, input=found["line"], capture_output=True, text=True, check=True
    ).stdout
    path.write_text(admission_file(found["line"], armoured, found["key"]))


@pytest.mark.parametrize(
    ("spoil", "state"),
    [
        (unsigned, "unsigned"),
        (with_another_driver, "tampered"),
        (with_a_broken_signature, "tampered"),
        (with_a_signature_for_another_purpose, "tampered"),
        (signed_by_somebody_else, "another key"),
    ],
)
def test_what_is_not_the_gates_is_told_apart_and_never_good(gated, capsys, tmp_path, spoil, state):
    path = signed(gated)
    spoil(path, tmp_path)
    code, found, why = verified(capsys, path, gated[1], "--now", "2026-12-01")
    assert (code, found) == (1, state)
    assert why


def test_one_that_has_expired_and_another_nodes_are_told_apart(gated, capsys, tmp_path):
    path = signed(gated, days=10)
    assert verified(capsys, path, gated[1], "--now", "2026-11-30")[1] == "good"
    assert verified(capsys, path, gated[1], "--now", "2026-12-01")[:2] == (1, "expired")
    (tmp_path / "facts.json").write_text(json.dumps(facts_of("f" * 32)))
    code, state, [why] = verified(
        capsys, path, gated[1], "--now", "2026-11-30", "--facts", tmp_path / "facts.json"
    )
    assert (code, state) == (1, "another node's")
    assert "0123456789abcdef" in why


def driver(sections):
    sections["driver"]["loaded"]["version"] = "580.1"


def swapped(sections):
    sections["gpus"]["devices"][2].update(uuid="GPU-new", serial="1651111111111")


def vbios(sections):
    sections["gpus"]["devices"][0]["vbios"] = "99.00"


def firmware(sections):
    sections["network"]["rdma"][0]["firmware"] = "28.40"


def lost_nic(sections):
    sections["network"]["rdma"] = []


def other(sections):
    sections["limits"]["hugepages_total"] = 512


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (driver, "the record gives driver as "), (swapped, "the record gives GPUs as GPU-"), (vbios, "vbios of GPU-"),
        (firmware, "the record gives firmware of mlx5_0 as 28.39.1002, and the node has 28.40"),
        (lost_nic, "the record gives RDMA devices as mlx5_0, and the node has none"),
        (other, "the node has other facts in limits"),
    ],
)  # fmt: skip
def test_what_changed_since_is_named_with_both_values(gated, capsys, tmp_path, change, message):
    path, facts = signed(gated), facts_of()
    change(facts["sections"])
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    code, state, why = verified(
        capsys, path, gated[1], "--now", "2026-12-01", "--facts", tmp_path / "facts.json"
    )
    assert (code, state) == (1, "changed")
    assert message in why[0]


def test_a_swapped_gpu_is_named_as_a_person_finds_it(gated, capsys, tmp_path):
    path, facts = signed(gated), facts_of()
    swapped(facts["sections"])
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    _, _, [why] = verified(
        capsys, path, gated[1], "--now", "2026-12-01", "--facts", tmp_path / "facts.json"
    )
    gone = FACTS["sections"]["gpus"]["devices"][2]
    assert (
        f" as {gone['uuid']} (serial 1650000000002, PCI {gone['pci_address']}), and the node has GPU-new (serial 1651111111111, PCI {gone['pci_address']})"
        in why
    )


@pytest.mark.parametrize(
    ("record", "key", "message"),
    ROWS["test_what_cannot_be_read_is_one_line_and_exit_code_2"],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(
    gated, capsys, tmp_path, record, key, message
):
    assert (
        main(["preprovision", "--verify", str(tmp_path / record), "--key", str(tmp_path / key)])
        == 2
    )
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("options", "message"),
    ROWS["test_options_that_do_not_fit_together_are_refused_before_anything_is_read"],
)
def test_options_that_do_not_fit_together_are_refused_before_anything_is_read(
    capsys, options, message
):
    assert main(["preprovision", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_private_key_given_for_the_public_one_is_not_read_as_one(gated, capsys, tmp_path):
    (tmp_path / "wrong.pub").write_text(gated[1].read_text())
    assert (
        main(["preprovision", "--verify", str(signed(gated)), "--key", str(tmp_path / "wrong.pub")])
        == 2
    )
    assert "is not a public key" in capsys.readouterr().err


def test_a_key_with_a_passphrase_ends_with_an_error_and_no_question(gated, capsys, tmp_path):
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret phrase", "-f", str(gated[1])], check=True
    )
    assert main(["gate-step", "records", str(gated[0]), "--key", str(gated[1])]) == 2
    assert "ssh-keygen could not sign" in capsys.readouterr().err


@pytest.mark.parametrize("day", ["0", "31.12.2027", "2027-1-1", "tomorrow"])
def test_a_day_that_is_no_date_is_refused_and_decides_nothing(gated, day, capsys):
    """Days are compared as texts: before one such as 0 no record would ever have expired."""
    assert (
        main(
            [
                "preprovision",
                "--verify",
                str(signed(gated)),
                "--key",
                f"{gated[1]}.pub",
                "--now",
                day,
            ]
        )
        == 2
    )
    assert f"--now takes a date such as 2026-12-31, not {day!r}" in capsys.readouterr().err


@pytest.mark.parametrize("sections", [[], {"node": []}, {"gpus": {"devices": [{"uuid": 7}]}}])
def test_facts_that_are_no_document_are_refused_and_compared_with_nothing(
    gated, tmp_path, sections, capsys
):
    (tmp_path / "facts.json").write_text(json.dumps({**facts_of(), "sections": sections}))
    assert (
        main(
            [
                "preprovision",
                "--verify",
                str(signed(gated)),
                "--key",
                f"{gated[1]}.pub",
                "--facts",
                str(tmp_path / "facts.json"),
            ]
        )
        == 2
    )
    errors = capsys.readouterr().err
    assert f"{tmp_path / 'facts.json'}: facts.sections" in errors
    assert "fault of unhang" not in errors


def nothing_read(facts):
    facts["sections"] = {}


def no_identity(facts):
    facts["sections"]["node"]["machine_id"] = None
    for row in facts["sections"]["gpus"]["devices"]:
        row["uuid"] = None


@pytest.mark.parametrize(
    ("hide", "named"),
    [
        (nothing_read, "machine id, GPUs, driver"),
        (no_identity, "machine id, GPUs"),
        (lambda facts: facts["sections"]["node"].update(machine_id=None), "machine id"),
        (lambda facts: facts["sections"]["gpus"].update(devices=None), "GPUs"),
        (lambda facts: facts["sections"]["gpus"].update(devices=[]), "GPUs"),
        (lambda facts: facts["sections"].pop("driver"), "driver"),
        (lambda facts: facts["sections"].pop("limits"), "section limits"),
    ],
)
def test_facts_that_hide_what_the_record_attests_prove_nothing(
    gated, capsys, tmp_path, hide, named
):
    """Another machine that does not say who it is must not pass for the admitted one."""
    facts = facts_of()
    hide(facts)
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    code, state, why = verified(
        capsys, signed(gated), gated[1], "--now", "2026-12-01", "--facts", tmp_path / "facts.json"
    )
    assert (code, state) == (3, "not proved")
    assert named in why[0]


def test_a_record_that_attests_no_identity_proves_nothing_of_a_node(gated, capsys, tmp_path):
    run, key = gated
    facts = facts_of()
    no_identity(facts)
    node = json.loads((run / "nodes" / "gpu001.json").read_text())
    (run / "nodes" / "gpu001.json").write_text(json.dumps({**node, "facts": facts}))
    path = signed(gated)
    code, state, why = verified(
        capsys, path, key, "--now", "2026-12-01", "--facts", run / "nodes" / "gpu001.json"
    )
    assert (code, state) == (3, "not proved")
    assert "an identity" in why[0]
