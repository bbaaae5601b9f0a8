"""What stages may be submitted by: what this package has, and what a DAG file registers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow.sdk import BaseOperator

from puffin_ann.airflow.submit.submission import MakeOperator, Submission
from puffin_ann.declaration import LIVY, SPARK_SUBMIT, IndexDeclaration, SparkOptions, check_name
from puffin_ann.errors import DeclarationError
from puffin_ann.imports.uncollected import imported


@dataclass(frozen=True)
class Backend:
    """What stages are submitted by.

    Attributes:
        name: by which declarations choose it.
        make: returns the operator that submits, when a task runs.
        check: raises an error where that cannot be; called by plans, before anything is staged.
    """

    name: str
    make: MakeOperator
    check: Callable[[SparkOptions], None]

    def __str__(self) -> str:
        """Return what Airflow writes into a DAG that it stores: the same in every process."""
        return self.name


def _ours(name: str) -> Backend:
    """Return a backend of this package; its module is imported when a task runs."""

    def make(submission: Submission) -> BaseOperator:
        operator: BaseOperator = imported(f"{__package__}.{name}").make_operator(submission)
        return operator

    def check(spark: SparkOptions) -> None:
        imported(f"{__package__}.{name}").check(spark)

    return Backend(name, make, check)


OURS = {name: _ours(name) for name in (SPARK_SUBMIT, LIVY)}


def known_backends(registered: Mapping[str, MakeOperator]) -> dict[str, Backend]:
    """Return all backends by name; one that is registered comes before one of this package.

    Args:
        registered: by a DAG file; each brings its own errors where it cannot submit.

    Raises:
        BadInputError: no backend can have such a name.
    """
    theirs = {
        check_name(name): Backend(name, make, lambda _: None) for name, make in registered.items()
    }
    return {**OURS, **theirs}


def backend_of(declaration: IndexDeclaration, known: Mapping[str, Backend]) -> Backend:
    """Return what the stages of an index are submitted by.

    Raises:
        DeclarationError: nothing has the declared name; tells those that there are.
    """
    name = declaration.spark.submit
    if name not in known:
        raise DeclarationError(
            f"index {declaration.name!r}: field 'spark.submit': nothing is known here by the name "
            f"{name!r}; known are: {', '.join(sorted(known))}. A DAG file makes more known by "
            f"index_dags(submit={{{name!r}: ...}})"
        )
    return known[name]
