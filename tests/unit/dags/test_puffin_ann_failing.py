"""How tasks fail: for good or to be tried again, with what is wrong at the end of the log."""

import traceback

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from puffin_ann.errors import (
    BadVectorsError,
    CatalogUnavailableError,
    DamagedIndexError,
    IndexNotFoundError,
    RecallTooLowError,
    TableNotFoundError,
    TooFewRowsError,
)
from puffin_ann_failing import plainly, skipping, tell

KINDS = ("build", "refresh", "maintain", "evaluate")


@pytest.mark.parametrize("error", [BadVectorsError, TableNotFoundError, RecallTooLowError])
def test_what_another_attempt_would_find_again_fails_for_good(error):
    with pytest.raises(AirflowFailException, match="why"), plainly():
        raise error("why")


@pytest.mark.parametrize("error", [CatalogUnavailableError, DamagedIndexError])
def test_what_may_pass_is_tried_again(error):
    with pytest.raises(AirflowException, match="why") as failed, plainly():
        raise error("why")
    assert not isinstance(failed.value, AirflowFailException)


def test_the_traceback_ends_with_what_is_wrong_and_has_none_of_what_led_to_it():
    def connect() -> None:
        raise OSError("Max retries exceeded with url: /v1/config")

    @plainly()
    def plan() -> None:
        try:
            connect()
        except OSError as error:
            raise CatalogUnavailableError("catalog 'x' does not answer; check it") from error

    with pytest.raises(AirflowException) as failed:
        plan()
    shown = "".join(traceback.format_exception(failed.value))
    assert shown.splitlines()[-1].endswith("catalog 'x' does not answer; check it")
    assert "Max retries" not in shown


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), plainly():
        _ = 1 / 0


def test_an_error_of_others_that_tells_a_secret_is_told_without_it():
    with pytest.raises(AirflowException) as failed, plainly():
        raise OSError("refused by mysql://svc:S3cretPw@db/lake")
    shown = "".join(traceback.format_exception(failed.value))
    assert shown.splitlines()[-1].endswith("OSError: refused by mysql://***@db/lake")


@pytest.mark.parametrize("error", [IndexNotFoundError, TooFewRowsError])
def test_what_has_nothing_to_work_on_yet_is_skipped(error):
    with pytest.raises(AirflowSkipException, match="why"), plainly(), skipping():
        raise error("why")


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_ends_the_log_of_a_failed_attempt_with_the_reason(load_dags, caplog, kind):
    dag = load_dags(f"ann_{kind}.py")[f"ann_{kind}_words"]
    for task in dag.tasks:
        assert tell in task.on_failure_callback
        assert tell in task.on_retry_callback
    caplog.set_level("INFO")
    tell({"exception": AirflowException("catalog 'x' does not answer; check it")})
    assert caplog.messages == ["::endgroup::", "catalog 'x' does not answer; check it"]


def test_an_attempt_that_was_killed_has_no_reason_of_its_own(caplog):
    tell({})
    assert caplog.messages == []
