"""Damaged text: half lines and broken numbers cost what they stand for, not the diagnosis."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from roadworthy.diagnose.examine import examine

DOCTOR = Path(__file__).parents[2] / "data" / "doctor"
CASES = sorted(DOCTOR.glob("reports/*.yaml"))


def damaged(text: str, r: random.Random) -> str:
    """Lines cut short, digits and points thrown in, lines out of order."""
    lines = text.split("\n")
    how = r.randrange(4)
    if how == 0:
        r.shuffle(lines)
    elif how == 1:
        lines = [line[: r.randint(0, len(line))] for line in lines]
    elif how == 2:
        lines = ["".join(r.choice("0123456789.,-:=| ") if r.random() < 0.05 else one for one in line) for line in lines]
    return "\n".join(line.replace(".", "..") if how == 3 else line for line in lines)


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_stops_the_examination(seed: int) -> None:
    r = random.Random(seed)
    for path in r.sample(CASES, 3):
        inputs = yaml.safe_load(path.read_text())["inputs"]
        examine({name: damaged(text, r) for name, text in inputs.items()})


def test_a_broken_number_hides_no_other_cause() -> None:
    _, judged = examine({
        "engine.log": "Loading safetensors checkpoint shards:   2% Completed | 4/163 [01:13<48:40, 18..37s/it]\n",
        "dmesg.txt": "[771.120] NVRM: Xid (PCI:0000:dd:00): 79, pid='<unknown>', GPU has fallen off the bus.\n",
    })  # fmt: skip
    assert [one.code for one in judged.findings] == ["gpu-fell-off-bus"]
