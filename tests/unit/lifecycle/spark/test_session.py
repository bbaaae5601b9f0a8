"""What a session of Spark needs before it is started."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from puffin_ann.errors import SparkNotFoundError
from puffin_ann.lifecycle.spark import session


def test_a_missing_spark_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SparkNotFoundError, match="spark-submit is not on PATH"):
        session.require_spark()


@pytest.fixture
def pyspark_folder(tmp_path, monkeypatch):
    """Put a folder of PySpark first on the path, with Python code and classes of given versions."""

    def make(*, code: str, classes: str | None) -> Path:
        folder = tmp_path / "pyspark"
        (folder / "jars").mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "version.py").write_text(f"__version__: str = '{code}'\n")
        if classes is not None:
            (folder / "jars" / f"spark-core_2.13-{classes}.jar").touch()
        monkeypatch.delenv("SPARK_HOME", raising=False)
        monkeypatch.setattr(
            session, "find_spec", lambda _: SimpleNamespace(origin=str(folder / "__init__.py"))
        )
        return folder

    return make


def test_pyspark_and_its_client_of_one_version_make_one_folder(pyspark_folder):
    pyspark_folder(code="4.1.3", classes="4.1.4")
    session.require_spark(())


def test_pyspark_overwritten_by_a_client_of_another_version_is_refused(pyspark_folder):
    folder = pyspark_folder(code="4.2.0", classes="4.1.4")
    with pytest.raises(
        SparkNotFoundError, match=r"pyspark==4\.2\.0 pyspark-client==4\.2\.0"
    ) as refused:
        session.require_spark(())
    assert str(folder) in str(refused.value)
    assert "Spark of version 4.1.4" in str(refused.value)


def test_the_client_alone_cannot_start_spark(pyspark_folder):
    pyspark_folder(code="4.2.0", classes=None)
    with pytest.raises(SparkNotFoundError, match=r"pip install 'puffin-ann\[spark\]'"):
        session.require_spark(())


def test_a_spark_of_its_own_is_not_looked_into(pyspark_folder, monkeypatch):
    pyspark_folder(code="4.2.0", classes=None)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    session.require_spark(())
