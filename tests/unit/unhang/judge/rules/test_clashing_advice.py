"""Two remedies contradict each other where no policy can follow both."""

from __future__ import annotations

from unhang.judge.rules.clashing_advice import contradicts


def test_a_contradiction_would_be_seen():
    assert contradicts({"driver": {"version": "535.154.05"}}, {"driver": {"min": "580.65.06"}}) == [
        ("driver", "version")
    ]
    assert contradicts({"driver": {"min": "535.154.05"}}, {"driver": {"min": "580.65.06"}}) == []
    assert contradicts({"host": {"iommu": "off"}}, {"host": {"iommu": "passthrough"}}) == [
        ("host", "iommu")
    ]
