"""Make the DAGs of the declared indexes. What it imports, Airflow imports with every parse."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict

from puffin_ann.airflow.dag_ids import Kind, dag_id_of
from puffin_ann.airflow.dags.build import build_dag, build_form
from puffin_ann.airflow.dags.collect import collect_dag, collect_id
from puffin_ann.airflow.dags.evaluate import evaluate_dag, evaluate_form
from puffin_ann.airflow.dags.invalid import invalid_dag
from puffin_ann.airflow.dags.maintain import maintain_dag
from puffin_ann.airflow.dags.refresh import refresh_dag
from puffin_ann.airflow.dags.settings import Installation
from puffin_ann.airflow.forms import force_form
from puffin_ann.airflow.submit.backends import known_backends
from puffin_ann.airflow.submit.submission import MakeOperator
from puffin_ann.declaration import (
    Declared,
    IndexDeclaration,
    declarations_folders,
    folder_beside,
    read_declarations,
)
from puffin_ann.errors import DeclarationError
from puffin_ann.imports.uncollected import uncollected

COLLECT_SCHEDULE = "*/10 * * * *"
"""How often it is collected how indexes stand; tasks that work on an index tell it besides."""


@dataclass(frozen=True)
class Recipe:
    """How the DAGs of one kind are made.

    Attributes:
        make: makes the DAG of an index, without its trigger form; it gets all valid
            declarations, since indexes of one table share what watches it.
        form: makes the trigger form.
    """

    make: Callable[[IndexDeclaration, Installation, list[IndexDeclaration]], DAG]
    form: Callable[[IndexDeclaration], dict[str, Param]]


RECIPES: dict[Kind, Recipe] = {
    "build": Recipe(lambda index, here, _: build_dag(index, here), build_form),
    "refresh": Recipe(refresh_dag, force_form),
    "maintain": Recipe(lambda index, here, _: maintain_dag(index, here), force_form),
    "evaluate": Recipe(lambda index, here, _: evaluate_dag(index, here), evaluate_form),
}


def index_dags(
    kinds: Iterable[Kind] = tuple(RECIPES),
    *,
    folder: str | Path | None = None,
    submit: Mapping[str, MakeOperator] | None = None,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
    on_failure_callback: Any = None,
    on_success_callback: Any = None,
    deadline: Any = None,
    collect: str | None = COLLECT_SCHEDULE,
) -> dict[str, DAG]:
    """Return the DAGs of the declared indexes, by id, for the globals of a DAG file.

    A process that runs one task asks for that task's DAG; the others are not made then. For a
    declaration that is not valid there is one DAG, of the kind "build", which says what is wrong:
    to raise would take away the DAGs of all other declarations.

    Args:
        kinds: those that are made for each declaration.
        folder: of the declarations, as seen from the DAG file that calls this. Without it they are
            those that PUFFIN_ANN_DECLARATIONS_DIR names or, where that is not set, `indexes` beside
            the DAG file.
        submit: what stages may be submitted by, beside what this package has: functions that make
            an operator of a `Submission`, by the name that declarations choose (`spark.submit`).
        default_args: of every task, as a DAG of Airflow has them: pool, queue, retries, owner,
            callbacks and so on. What a declaration says (`airflow`) comes before them.
        tags: of every DAG, beside ours.
        on_failure_callback: called when a run has failed, as a DAG of Airflow has it.
        on_success_callback: called when a run has succeeded, likewise.
        deadline: Airflow's `DeadlineAlert`, or several, for each run.
        collect: schedule of the DAG that collects how all indexes of the folder stand, for the page
            of indexes; None for no such DAG.

    Raises:
        EnvironmentProblemError: there is no folder of declarations.
        BadInputError: a name of `submit` can be none.
    """
    # As Airflow finds the file of a DAG; a bundle lies somewhere else in each process.
    file = Path(sys._getframe(1).f_code.co_filename)
    beside = folder_beside(file, folder)
    folders = declarations_folders() if beside is None else (beside,)
    dag_args = {
        "on_failure_callback": on_failure_callback,
        "on_success_callback": on_success_callback,
        "deadline": deadline,
    }
    here = Installation(
        backends=known_backends(submit or {}),
        default_args=default_args or {},
        dag_args={name: value for name, value in dag_args.items() if value is not None},
        tags=tuple(tags),
    )
    collecting = None if collect is None else (collect_id(file, folder), collect)
    return _dags_in(folders, tuple(kinds), here, collecting)


@uncollected()
def _dags_in(
    folders: tuple[Path, ...],
    kinds: tuple[Kind, ...],
    here: Installation,
    collecting: tuple[str, str] | None,
) -> dict[str, DAG]:
    declared, refused = _accepted(read_declarations(*folders), here)
    wanted = get_parsing_context().dag_id
    dags: dict[str, DAG] = {}
    for kind in kinds:
        dags |= _dags_of_kind(kind, declared, here, wanted)
        if kind == "build":
            dags |= {
                dag_id: invalid_dag(dag_id, error)
                for dag_id, error in _problems(declared, refused).items()
                if wanted in (None, dag_id)
            }
    if collecting is not None and declared.valid and wanted in (None, collecting[0]):
        dags[collecting[0]] = collect_dag(*collecting, list(declared.valid), here)
    return dags


def _accepted(
    declared: Declared, here: Installation
) -> tuple[Declared, dict[str, DeclarationError]]:
    """Return the declarations that a DAG file can make DAGs of, and what is wrong with others."""
    refused: dict[str, DeclarationError] = {}
    for declaration in declared.valid:
        try:
            here.backend_of(declaration)
        except DeclarationError as error:
            refused[declaration.name] = error
    valid = tuple(declaration for declaration in declared.valid if declaration.name not in refused)
    return replace(declared, valid=valid), refused


def _dags_of_kind(
    kind: Kind, declared: Declared, here: Installation, wanted: str | None
) -> dict[str, DAG]:
    recipe = RECIPES[kind]
    dags: dict[str, DAG] = {}
    for declaration in declared.valid:
        dag_id = dag_id_of(kind, declaration.name)
        if wanted in (None, dag_id):
            dags[dag_id] = dag = recipe.make(declaration, here, list(declared.valid))
            # Afterwards: while tasks are made, Airflow copies the whole form for each of them.
            dag.params = ParamsDict(recipe.form(declaration))
    return dags


def _problems(
    declared: Declared, refused: Mapping[str, DeclarationError]
) -> dict[str, DeclarationError]:
    """Return what is not valid, by an id that no DAG has: named after the file or the index."""
    problems: dict[str, DeclarationError] = {}
    taken = {dag_id_of("build", declaration.name) for declaration in declared.valid}
    named = [(path.stem, error) for path, error in declared.broken.items()]
    for name, error in [*refused.items(), *declared.ambiguous.items(), *named]:
        dag_id = dag_id_of("build", name)
        while dag_id in taken:
            dag_id += "_"
        taken.add(dag_id)
        problems[dag_id] = error
    return problems
