"""How a task fails: for good or to be tried again, with what is wrong at the end of its log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk import Context

from puffin_ann.airflow.dag_ids import WHY_FAILED
from puffin_ann.airflow.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)
from puffin_ann.errors import (
    BadInputError,
    IndexNotFoundError,
    NotFoundError,
    PuffinAnnError,
    RecallTooLowError,
    TooFewRowsError,
)
from puffin_ann.redaction import redact, shown_cause

log = logging.getLogger("airflow.task")

PERMANENT = (BadInputError, NotFoundError, RecallTooLowError)
"""Of these the next attempt would find the same: it would only hold up."""

PERMANENT_EXIT_CODES = frozenset(error.exit_code for error in PERMANENT)


class StageException(AirflowException):
    """A stage failed on Spark, and said why."""


def stage_failure(message: str, exit_code: int | None) -> AirflowException:
    """Return what fails the task of a stage that left with an exit code, for good or not."""
    kind = AirflowFailException if exit_code in PERMANENT_EXIT_CODES else StageException
    return kind(message)


def without_secrets(error: Exception) -> AirflowException:
    """Return what fails a task as an error of others that tells a secret, but without that."""
    return AirflowException(f"{type(error).__name__}: {redact(str(error))}")


def log_defect(what: str, error: Exception) -> None:
    """Log an error that a task goes on after, with its traceback unless that tells a secret."""
    if shown_cause(error) is not None:
        log.error("%s", what, exc_info=error)
    else:
        log.error("%s: %s", what, without_secrets(error))


@contextmanager
def fail_plainly() -> Iterator[None]:
    """Let a task fail by what an error of ours says, without what led to it.

    Such a message names the thing, what is wrong and what to do; the frames of some HTTP client
    above it would only hide that. Another error fails it as it is, unless that tells a secret, such
    as the address of a catalog: Airflow logs whatever is raised. Also a decorator.
    """
    try:
        yield
    except PERMANENT as error:
        raise AirflowFailException(str(error)) from None
    except PuffinAnnError as error:
        raise AirflowException(str(error)) from None
    except Exception as error:
        if shown_cause(error) is not None:
            raise
        raise without_secrets(error) from None


@contextmanager
def skip_without_work() -> Iterator[None]:
    """Skip a task that has nothing to work on yet: no index is built, or the table has no rows."""
    try:
        yield
    except (IndexNotFoundError, TooFewRowsError) as error:
        raise AirflowSkipException(str(error)) from None


def log_failure(context: Context) -> None:
    """Log why an attempt failed: after the traceback, where people look. Keep it for the page."""
    error = context.get("exception")
    if error is None:
        return
    log.info("::endgroup::")  # of what runs after a task: the UI shows it folded
    log.error("%s", redact(str(error)))
    from puffin_ann.lifecycle.report.overview import sentence

    try:
        context["ti"].xcom_push(key=WHY_FAILED, value=sentence(str(error)))
    except Exception as refused:  # the log has it; a task does not fail otherwise for a page
        log.info("the page will not show why: %s", redact(str(refused)))
