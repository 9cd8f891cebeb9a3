"""A cause that stands for a family says which member its line shows; what the reader does fits that member, its layer and what the report compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.catalogue import table
from unhang.jobs.diagnose.diagnosing import diagnose
from unhang.jobs.diagnose.matching.signatures import load_signatures
from unhang.jobs.diagnose.rendering import render_table

RULES = Path(__file__).resolve().parents[5] / "tools/unhang/jobs"
NO_HOST = "ValueError: host not found: Name or service not known\n"
# text -> (words of the answer, words that must not be in it)
REMEDIES = {
    f"The worker pod crashes until the master pod is up:\n{NO_HOST}": ("restartPolicy OnFailure", "is_host"),
    NO_HOST: ("getent hosts NAME", "kubectl"),
    f"INFO 2024-02-03 11:12:13,785 Etcd machines: ['http://0.0.0.0:2379']\n{NO_HOST}": ("--advertise-client-urls", "is_host"),
    "RuntimeError: [enforce fail at ../gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ib7\n": ("grep -rn SOCKET_IFNAME", "Ray"),
    "Only in docker, not on the hosts:\nc1:2:3 [0] NCCL WARN Call to ibv_modify_qp failed with error No such device\n": ("inside the container", "cabling"),
}


@pytest.fixture
def answer(tmp_path):
    def answer(text):
        (tmp_path / "report.txt").write_text(text, encoding="utf-8")
        return diagnose([str(tmp_path / "report.txt")])

    return answer


@pytest.mark.parametrize("text", sorted(REMEDIES))
def test_remedy_is_that_of_the_member_which_the_line_shows(answer, text):
    shown = " ".join(render_table(answer(text)).split())
    wanted, elsewhere = REMEDIES[text]
    assert wanted in shown
    assert elsewhere not in shown


def test_evidence_with_a_remedy_of_its_own_exists():
    code = "".join(path.read_text(encoding="utf-8") for path in RULES.rglob("*.py"))
    known = {signature.id for signature in load_signatures()}
    for row in table("own_remedies").values():
        assert row.get("person") or row.get("title")
        for name in (row["evidence"], *row["also"]):
            traits = {name.removeprefix("job:"), name.removeprefix("job:").replace("-", " ")}  # evidence from a script is named after the script's trait
            assert name in known or any(f'"{one}"' in code for one in traits), name
