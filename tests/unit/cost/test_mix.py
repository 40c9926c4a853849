"""Which input tokens count as an API's cache hits."""

from __future__ import annotations

from dataclasses import replace

from roadworthy.cost.report import make_report
from roadworthy.spec.values import CostSpec, RequestProfile, Sessions
from support.cost import API, deployment, h100, throughput


def test_turns_of_a_conversation_are_priced_as_hits_unless_the_document_says_otherwise() -> None:
    base = deployment(CostSpec(api=API))
    profile = RequestProfile(shared_prefix_ratio=0.2)
    talk = replace(profile, sessions=Sessions(turns=6))
    ratios = [
        make_report(replace(base, workload=one), "DeepSeek-V4-Pro", h100(), throughput()).mix.hit_ratio
        for one in (profile, talk)
    ]
    assert ratios[0] == 0.2
    assert 0.6 < ratios[1] < 1
    said = deployment(CostSpec(api=API, hit_ratio=0.5))
    report = make_report(replace(said, workload=talk), "DeepSeek-V4-Pro", h100(), throughput())
    assert report.mix.hit_ratio == 0.5
