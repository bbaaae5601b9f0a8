"""What the page of vector indexes is made of, as Airflow would know it."""

from puffin_ann.airflow.page.database import Dag, Known, Run

KINDS = ("build", "refresh")


def dags(index: str, *more: str) -> tuple[Dag, ...]:
    return tuple(
        Dag(
            f"ann_{kind}_{index}",
            frozenset({"puffin-ann", kind, f"demo.glove.{index}", *more}),
            False,
            f"of {index}",
            None,
        )
        for kind in KINDS
    )


def known(
    *found: Dag, documents=(), last: tuple[Run, ...] = (), running: tuple[Run, ...] = ()
) -> Known:
    return Known(
        dags=found,
        last={run.dag_id: run for run in last},
        running={run.dag_id: (run,) for run in running},
        documents=tuple(documents),
    )
