"""Fixtures that every kind of test shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# a busy machine is no finding: examples are counted, never timed
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def test_data() -> Path:
    """Data that we did not write (real config.json files, CRDs); a named skip where it is not laid out."""
    root = os.environ.get("ROADWORTHY_TEST_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("ROADWORTHY_TEST_DATA names no folder: real model configs are not committed")
    return Path(root)


@pytest.fixture(scope="session")
def examples() -> Path:
    """The example documents that CI plans."""
    return REPOSITORY / "examples"
