"""How tasks fail: for good or to be tried again, with what is wrong at the end of the log."""

import traceback

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from puffin_ann.airflow.dag_ids import WHY_FAILED
from puffin_ann.airflow.failures import fail_plainly, log_failure, skip_without_work
from puffin_ann.errors import (
    BadVectorsError,
    CatalogUnavailableError,
    DamagedIndexError,
    IndexNotFoundError,
    RecallTooLowError,
    TableNotFoundError,
    TooFewRowsError,
)

KINDS = ("build", "refresh", "maintain", "evaluate")


@pytest.mark.parametrize("error", [BadVectorsError, TableNotFoundError, RecallTooLowError])
def test_what_another_attempt_would_find_again_fails_for_good(error):
    with pytest.raises(AirflowFailException, match="why"), fail_plainly():
        raise error("why")


@pytest.mark.parametrize("error", [CatalogUnavailableError, DamagedIndexError])
def test_what_may_pass_is_tried_again(error):
    with pytest.raises(AirflowException, match="why") as failed, fail_plainly():
        raise error("why")
    assert not isinstance(failed.value, AirflowFailException)


def test_the_traceback_ends_with_what_is_wrong_and_has_none_of_what_led_to_it():
    def connect() -> None:
        raise OSError("Max retries exceeded with url: /v1/config")

    @fail_plainly()
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
    with pytest.raises(ZeroDivisionError), fail_plainly():
        _ = 1 / 0


def test_an_error_of_others_that_tells_a_secret_is_told_without_it():
    with pytest.raises(AirflowException) as failed, fail_plainly():
        raise OSError("refused by mysql://svc:S3cretPw@db/lake")
    shown = "".join(traceback.format_exception(failed.value))
    assert shown.splitlines()[-1].endswith("OSError: refused by mysql://***@db/lake")


@pytest.mark.parametrize("error", [IndexNotFoundError, TooFewRowsError])
def test_what_has_nothing_to_work_on_yet_is_skipped(error):
    with pytest.raises(AirflowSkipException, match="why"), fail_plainly(), skip_without_work():
        raise error("why")


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_ends_the_log_of_a_failed_attempt_with_the_reason(load_dags, caplog, kind):
    dag = load_dags(kind)[f"ann_{kind}_words"]
    for task in dag.tasks:
        assert log_failure in task.on_failure_callback
        assert log_failure in task.on_retry_callback
    caplog.set_level("INFO")
    attempt, said = Attempt(), "catalog 'x' does not answer; check it"
    log_failure({"exception": AirflowException(said), "ti": attempt})
    assert caplog.messages == ["::endgroup::", said]
    assert attempt.kept == {WHY_FAILED: said}


class Attempt:
    """At a task, which keeps what it is given as XComs."""

    def __init__(self):
        self.kept = {}

    def xcom_push(self, key, value):
        self.kept[key] = value


def test_the_reason_at_the_end_of_the_log_tells_no_secret(caplog):
    caplog.set_level("INFO")
    attempt = Attempt()
    secret = "refused by mysql://svc:S3cretPw@db/lake"
    log_failure({"exception": OSError(secret), "ti": attempt})
    assert caplog.messages[-1] == "refused by mysql://***@db/lake"
    assert attempt.kept == {WHY_FAILED: "refused by mysql://***@db/lake"}


def test_where_the_reason_cannot_be_kept_the_log_has_it(caplog):
    caplog.set_level("INFO")
    log_failure({"exception": AirflowException("the catalog does not answer")})
    assert caplog.messages[1] == "the catalog does not answer"
    assert caplog.messages[2].startswith("the page will not show why")


def test_an_attempt_that_was_killed_has_no_reason_of_its_own(caplog):
    log_failure({})
    assert caplog.messages == []
