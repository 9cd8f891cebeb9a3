"""Files of the gate on a node: the admission record that the audit compares, and private keys that
must not be there."""

from __future__ import annotations

import json
import subprocess

import pytest
from recorded_roots import copied, facts, unread

RECORD = {
    "schema": "unhang/admission/1", "host": "gpu001", "run": "r",
    "admitted_at": "2026-11-20T17:58:00Z", "expires": "2027-11-20", "machine_id": "a" * 32,
    "gpus": [{"uuid": "GPU-b", "vbios": "96.1", "inforom": None}, {"uuid": "GPU-a", "vbios": "96.1",
    "inforom": None}],
    "nics": [{"name": "mlx5_0", "firmware": "28.39"}],
    "versions": {"driver": "580.1", "kernel": None}, "new": {"later": 1},
}  # fmt: skip
SIGNATURE = "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"


def placed(tmp_path, text):
    """The admission field of a node that has this file."""
    root = copied("h200x8", tmp_path)
    (root / "etc/unhang").mkdir(parents=True)
    (root / "etc/unhang/admission").write_text(text)
    return root


def test_a_node_without_a_record_says_so(tmp_path):
    assert facts(copied("h200x8", tmp_path), "node")["admission"] == {
        "path": "/etc/unhang/admission",
        "record": None,
        "private_keys": [],
    }


@pytest.mark.parametrize("signature", ["", SIGNATURE])
def test_a_record_is_read_sorted_and_without_what_it_does_not_know(tmp_path, signature):
    root = placed(tmp_path, f"# Written by unhang.\n{json.dumps(RECORD)}\n{signature}")
    assert facts(root, "node")["admission"]["record"] == {
        "host": "gpu001", "run": "r", "admitted_at": "2026-11-20T17:58:00Z",
        "expires": "2027-11-20", "machine_id": "a" * 32, "driver": "580.1", "kernel": None,
        "bios": None, "gpu_uuids": ["GPU-a", "GPU-b"], "vbios": ["96.1"], "inforom": [],
        "nics": ["mlx5_0"],
        "nic_firmware": ["28.39"], "signed": bool(signature),
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rubbish\n",
        "{\n",
        '{"schema": "unhang/admission/2"}\n',
        "{" * 5000 + "\n",
        '{"schema": 1}\n',
    ],
)
def test_rubbish_is_unread_with_its_reason_and_no_absence(tmp_path, text):
    root = placed(tmp_path, text)
    assert facts(root, "node")["admission"]["record"] is None
    assert unread(root, "node")["admission.record"]["status"] == "error"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PEM", "RFC4716", "PKCS8"])
def test_a_private_key_is_found_in_each_form_whatever_its_name(tmp_path, kind):
    root = placed(tmp_path, json.dumps(RECORD))
    key = root / "etc/unhang/notes.txt"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-m", kind, "-f", str(key)],
        check=True,
    )
    assert facts(root, "node")["admission"]["private_keys"] == ["/etc/unhang/notes.txt"]
