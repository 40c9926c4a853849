"""Any order of steps, on every kind of meter, against one simple model."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from support.meter_model import MeterMachine

if TYPE_CHECKING:
    from support.meters import Bench


def test_every_order_of_steps_ends_where_the_model_ends(bench: Bench) -> None:
    run, number = uuid.uuid4().hex[:8], itertools.count()
    run_state_machine_as_test(
        lambda: MeterMachine(bench, f"model-{run}-{next(number)}"),
        settings=settings(
            max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
