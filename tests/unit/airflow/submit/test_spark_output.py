"""What `spark-submit` prints: what of it a task's log has, and what the file that it names."""

import logging
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from puffin_ann import application_lines
from puffin_ann.airflow.submit.spark_output import LAST_LINES, file_of
from puffin_ann.airflow.submit.spark_submit import SubmitOperator

SPARK = "26/11/23 08:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library"
OURS = "puffin-ann INFO assign: 60% done after 20 s"


def task(map_index: int = -1) -> SimpleNamespace:
    return SimpleNamespace(
        dag_id="ann_build_words",
        run_id="manual__2026-11-23T08:00:00+00:00",
        task_id="assign",
        map_index=map_index,
        try_number=2,
        stats_tags={},
        xcom_push=lambda **_: None,
    )


@pytest.fixture
def logs(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path / "logs"))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    return tmp_path / "logs"


@pytest.fixture
def submit(logs, monkeypatch, caplog):
    """Execute an application whose spark-submit is a script that prints lines, and leaves."""
    caplog.set_level("INFO")

    def submit(*lines: str, code: int = 0) -> None:
        script = "; ".join([*(f"echo '{line}'" for line in lines), f"exit {code}"])
        monkeypatch.setattr(
            SparkSubmitHook, "_build_spark_submit_command", lambda *_: ["sh", "-c", script]
        )
        SubmitOperator(task_id="submit", application="assign.py").execute({"ti": task()})

    return submit


def file_in(logs: Path) -> Path:
    (file,) = (path for path in logs.rglob("*") if path.is_file())
    return file


def test_lines_of_ours_are_in_the_log_and_all_lines_in_the_file_that_it_names(submit, logs, caplog):
    submit(SPARK, OURS, "puffin-ann WARNING a vector is null", SPARK)
    file = file_in(logs)
    assert file.read_text().splitlines()[:4] == [
        SPARK,
        OURS,
        "puffin-ann WARNING a vector is null",
        SPARK,
    ]
    assert f"what Spark prints is in {file}" in caplog.messages
    assert "assign: 60% done after 20 s" in caplog.messages
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert warning.getMessage() == "a vector is null"
    assert not any("NativeCodeLoader" in message for message in caplog.messages)


def test_the_file_is_that_of_the_attempt_and_for_its_owner_alone(submit, logs):
    submit(SPARK)
    file = file_in(logs)
    assert file.relative_to(logs).as_posix() == (
        "spark/dag_id=ann_build_words/run_id=manual__2026-11-23T08_00_00+00_00/"
        "task_id=assign/attempt=2.log"
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "map_index=3" in file_of({"ti": task(map_index=3)}).as_posix()


def test_where_it_fails_the_log_has_the_last_lines_of_spark_and_then_the_reason(submit, caplog):
    told = [f"line {number}" for number in range(LAST_LINES + 5)]
    with pytest.raises(AirflowFailException, match=r"^3 vectors are null; mend them$"):
        submit(OURS, *told, "error: 3 vectors are null; mend them", code=2)
    last = caplog.messages[-1]
    assert last.splitlines()[1:] == told[5:]


def test_what_spark_alone_says_of_its_failure_is_told_too(submit, caplog):
    with pytest.raises(AirflowException, match="Error code is: 1"):
        submit("Exception in thread main java.lang.OutOfMemoryError", code=1)
    assert "OutOfMemoryError" in caplog.messages[-1]


def test_where_no_file_can_be_written_the_log_has_everything(submit, logs, caplog):
    logs.write_text("a file where the folder would be")
    submit(SPARK, OURS)
    assert any("no file can be written" in message for message in caplog.messages)
    assert SPARK in caplog.messages


def test_the_file_has_no_secrets(submit, logs):
    submit("refused by mysql://svc:S3cretPw@db/lake")
    assert "mysql://***@db/lake" in file_in(logs).read_text()


@pytest.mark.parametrize("can_write", [True, False])
def test_the_log_has_no_secrets_however_it_ends(submit, logs, caplog, can_write):
    if not can_write:
        logs.write_text("a file where the folder would be")
    with pytest.raises(AirflowException, match="Error code is: 1"):
        submit("refused by mysql://svc:S3cretPw@db/lake", code=1)
    assert "mysql://***@db/lake" in caplog.messages[-1]
    assert "S3cretPw" not in caplog.text


def test_a_record_of_an_application_is_read_as_what_it_was():
    record = logging.LogRecord("puffin_ann", logging.ERROR, "f", 1, "%s is gone", ("it",), None)
    line = logging.Formatter(application_lines.FORMAT).format(record)
    assert application_lines.record_in(f"{line}\n") == (logging.ERROR, "it is gone")
    assert application_lines.failure_in(f"{application_lines.FAILURE}it is gone\n") == "it is gone"


@pytest.mark.parametrize("line", ["", SPARK, "puffin-ann", "puffin-ann LOUD x", "no error: x"])
def test_lines_of_others_are_not_taken_for_ours(line):
    assert application_lines.record_in(line) is None
    assert application_lines.failure_in(line) == ""
