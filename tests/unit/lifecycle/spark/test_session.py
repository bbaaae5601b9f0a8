"""What a session of Spark needs before it is started."""

import pytest

from puffin_ann.errors import SparkNotFoundError
from puffin_ann.lifecycle.spark import session


def test_a_missing_spark_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SparkNotFoundError, match="spark-submit is not on PATH"):
        session.require_spark()
