import logging
import os
import time
import zlib
from pathlib import Path

import pytest
from home import QUICK_JVM
from hypothesis import settings

from puffin_ann import redaction
from puffin_ann import settings as settings_of_process
from puffin_ann.search.conditions import paces
from puffin_ann.settings import Settings

pytest.register_assert_rewrite("tests.support")
pytest_plugins = ["tests.support.fixtures"]

# Tests choose their settings themselves, whatever is set for whoever runs them. What remains is
# where compiled kernels lie, and for which instructions they are compiled.
REMAINING = ("PUFFIN_ANN_CACHE_DIR", "PUFFIN_ANN_SIMD")
for name in [name for name in os.environ if name.startswith("PUFFIN_ANN_")]:
    if name not in REMAINING:
        del os.environ[name]

# Kernels that `make setup` did not compile are shared by all processes of all runs, whatever cache
# a test chooses: the compiler is not what is tested.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Settings().cache_dir))

# Spark's drivers are started by many tests, and each does little.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JVM)

ENDS = pytest.StashKey[float]()
UNIT = Path(__file__).parent / "unit"
LONGEST = UNIT.with_name("integration") / "pages"

# The first example of a test pays for imports and compiled kernels, on a machine that is often
# shared; what takes too long is seen in the durations that pytest prints.
settings.register_profile("puffin-ann", deadline=None)
settings.load_profile("puffin-ann")

# Its connections say farewell when they are collected, which may be after pytest's streams closed.
logging.getLogger("py4j").setLevel(logging.WARNING)


def pytest_addoption(parser):
    parser.addoption("--for-seconds", type=float, default=float("inf"), help="begin no test later")
    parser.addoption("--turn", default="", help="text that says which file of tests comes first")


def pytest_configure(config):
    config.stash[ENDS] = time.monotonic() + config.option.for_seconds


def pytest_collection_modifyitems(config, items):
    """Begin with what takes longest; where there is no time for all, with another file each time.

    The many short unit tests come last: no process is at work then while the other has none left.
    """
    items.sort(key=lambda item: (item.path.parent != LONGEST, UNIT in item.path.parents))
    if config.option.turn and items:
        first = items[zlib.crc32(config.option.turn.encode()) % len(items)].path
        at = next(number for number, item in enumerate(items) if item.path == first)
        items[:] = items[at:] + items[:at]


def pytest_runtest_setup(item):
    if time.monotonic() > item.config.stash[ENDS]:
        pytest.skip("no time was left")


@pytest.fixture(autouse=True)
def _no_secret_met(monkeypatch):
    """The password of one test's catalog may be a plain word in another's messages."""
    monkeypatch.setattr(redaction, "_met", {})


@pytest.fixture(autouse=True)
def _no_pace_kept():
    """How long the searches of one test took is nothing to the next."""
    yield
    paces.forget()


@pytest.fixture(autouse=True)
def _no_settings_kept():
    """What a test read from its variables is no setting of the next."""
    yield
    settings_of_process.settings.cache_clear()
