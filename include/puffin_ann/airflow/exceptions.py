"""Airflow's exceptions: `airflow.sdk.exceptions` has all of them since 3.2, and warns elsewhere."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        DagRunTriggerException,
    )
else:
    _sdk = import_module("airflow.sdk.exceptions")
    _here = _sdk if hasattr(_sdk, "AirflowFailException") else import_module("airflow.exceptions")
    AirflowException = _here.AirflowException
    AirflowFailException = _here.AirflowFailException
    AirflowNotFoundException = _here.AirflowNotFoundException
    AirflowSkipException = _here.AirflowSkipException
    DagRunTriggerException = _here.DagRunTriggerException

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "DagRunTriggerException",
]
