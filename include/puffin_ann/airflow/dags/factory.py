"""Make the DAGs of the declared indexes. What it imports, Airflow imports with every parse."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from airflow.sdk import DAG, Param, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict

from puffin_ann.airflow.dag_ids import Kind, dag_id_of
from puffin_ann.airflow.dags.build import build_dag, build_form
from puffin_ann.airflow.dags.evaluate import evaluate_dag, evaluate_form
from puffin_ann.airflow.dags.invalid import invalid_dag
from puffin_ann.airflow.dags.maintain import maintain_dag
from puffin_ann.airflow.dags.refresh import refresh_dag
from puffin_ann.airflow.forms import force_form
from puffin_ann.declaration import (
    Declared,
    IndexDeclaration,
    declarations_folders,
    folder_beside,
    read_declarations,
)
from puffin_ann.errors import DeclarationError
from puffin_ann.uncollected import uncollected


@dataclass(frozen=True)
class Recipe:
    """How the DAGs of one kind are made.

    Attributes:
        make: makes the DAG of an index, without its trigger form; it gets all valid
            declarations, since indexes of one table share what watches it.
        form: makes the trigger form.
    """

    make: Callable[[IndexDeclaration, list[IndexDeclaration]], DAG]
    form: Callable[[IndexDeclaration], dict[str, Param]]


RECIPES: dict[Kind, Recipe] = {
    "build": Recipe(lambda declaration, _: build_dag(declaration), build_form),
    "refresh": Recipe(refresh_dag, force_form),
    "maintain": Recipe(lambda declaration, _: maintain_dag(declaration), force_form),
    "evaluate": Recipe(lambda declaration, _: evaluate_dag(declaration), evaluate_form),
}


def index_dags(
    kinds: Iterable[Kind] = tuple(RECIPES), *, folder: str | Path | None = None
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

    Raises:
        EnvironmentProblemError: there is no folder of declarations.
    """
    # As Airflow finds the file of a DAG; a bundle lies somewhere else in each process.
    beside = folder_beside(Path(sys._getframe(1).f_code.co_filename), folder)
    folders = declarations_folders() if beside is None else (beside,)
    return _dags_in(folders, tuple(kinds))


@uncollected()
def _dags_in(folders: tuple[Path, ...], kinds: tuple[Kind, ...]) -> dict[str, DAG]:
    declared = read_declarations(*folders)
    wanted = get_parsing_context().dag_id
    dags: dict[str, DAG] = {}
    for kind in kinds:
        dags |= _dags_of_kind(kind, declared, wanted)
        if kind == "build":
            dags |= {
                dag_id: invalid_dag(dag_id, error)
                for dag_id, error in _problems(declared).items()
                if wanted in (None, dag_id)
            }
    return dags


def _dags_of_kind(kind: Kind, declared: Declared, wanted: str | None) -> dict[str, DAG]:
    recipe = RECIPES[kind]
    dags: dict[str, DAG] = {}
    for declaration in declared.valid:
        dag_id = dag_id_of(kind, declaration.name)
        if wanted in (None, dag_id):
            dags[dag_id] = dag = recipe.make(declaration, list(declared.valid))
            # Afterwards: while tasks are made, Airflow copies the whole form for each of them.
            dag.params = ParamsDict(recipe.form(declaration))
    return dags


def _problems(declared: Declared) -> dict[str, DeclarationError]:
    """Return what is not valid, by an id that no DAG has: named after the file or the index."""
    problems: dict[str, DeclarationError] = {}
    taken = {dag_id_of("build", declaration.name) for declaration in declared.valid}
    named = [(path.stem, error) for path, error in declared.broken.items()]
    for name, error in [*declared.ambiguous.items(), *named]:
        dag_id = dag_id_of("build", name)
        while dag_id in taken:
            dag_id += "_"
        taken.add(dag_id)
        problems[dag_id] = error
    return problems
