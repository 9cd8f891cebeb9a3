"""Signs that several lines give together: who holds a GPU, which kernel a module was built for,
which NCCL is loaded, a firewall that is on."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text


@pytest.mark.parametrize(("type_", "expected"), [("p5.48xlarge", True), ("g5.48xlarge", False)])
def test_instance_with_amazons_adapter_and_sockets_lacks_its_plugin(type_, expected):
    text = (
        f"# reporter: two {type_}\nn1:8:9 [0] NCCL INFO NET/Socket : Using"
        " [0]ens5:198.51.100.3<0>\nn1:8:9 [0] NCCL INFO Using network Socket"
    )
    assert (
        "net_plugin_not_loaded"
        in [one["cause"] for one in diagnose_text(text)["causes"] if one["points"] >= 4]
    ) is expected
