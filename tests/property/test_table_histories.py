"""Random histories of a table and its indexes, for as long as asked.

make soak MINUTES=60            # PyIceberg alone, many short steps
make soak MINUTES=60 SPARK=1    # with Spark's own procedures among them
make soak MINUTES=60 REST=1     # these on the REST catalog, with tables on S3
"""

import os
import time

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.spark_rules import SparkRules
from tests.property.table_rules import TableRules
from tests.property.two_catalogs_rules import TwoCatalogsRules

REST = bool(os.environ.get("SOAK_REST"))
SPARK = REST or bool(os.environ.get("SOAK_SPARK"))
MINUTES = float(os.environ.get("SOAK_MINUTES", "0.1"))
STEPS = int(os.environ.get("SOAK_STEPS", "12"))
PHASES = (Phase.generate, Phase.shrink) if os.environ.get("SOAK_SHRINK") else (Phase.generate,)
"""A history is told step by step as it is; to make it shorter takes many more."""


def run_histories(machine, minutes: float) -> int:
    """Run histories until the time is over; returns how many batches of them there were."""
    end = time.monotonic() + minutes * 60
    batches = 0
    while time.monotonic() < end:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=3,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                print_blob=True,
                phases=PHASES,
                suppress_health_check=list(HealthCheck),
            ),
        )
        batches += 1
    return batches


def test_random_histories_keep_every_promise():
    assert run_histories(TableRules, MINUTES * (0.3 if SPARK else 0.6)) > 0


def test_random_histories_in_two_catalogs_lose_nothing_that_either_needs():
    assert run_histories(TwoCatalogsRules, MINUTES * (0.2 if SPARK else 0.4)) > 0


@pytest.mark.long
@pytest.mark.slow
def test_random_histories_with_sparks_procedures_keep_every_promise(request):
    SparkRules.lake = request.getfixturevalue("rest_lake" if REST else "embedded_lake")
    assert run_histories(SparkRules, MINUTES / 2 if SPARK else MINUTES) > 0
