import logging
import os

import pytest
from home import QUICK_JVM
from hypothesis import settings

from puffin_ann import redaction
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

# The first example of a test pays for imports and compiled kernels, on a machine that is often
# shared; what takes too long is seen in the durations that pytest prints.
settings.register_profile("puffin-ann", deadline=None)
settings.load_profile("puffin-ann")

# Its connections say farewell when they are collected, which may be after pytest's streams closed.
logging.getLogger("py4j").setLevel(logging.WARNING)


@pytest.fixture(autouse=True)
def _no_secret_met(monkeypatch):
    """The password of one test's catalog may be a plain word in another's messages."""
    monkeypatch.setattr(redaction, "_met", {})
