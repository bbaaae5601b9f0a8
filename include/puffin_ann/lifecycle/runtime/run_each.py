"""Do one thing for each of many tasks, wherever a stage's tasks run."""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter

from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runtime.progress import Size, metering, task_progress
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import Workspace

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def run_each(
    runner: Runner,
    run: RunRef,
    work: Callable[[Workspace, Task], Outcome],
    tasks: Iterable[Task],
    *,
    size: Size | None = None,
) -> list[Outcome]:
    """Call a function once for each task, and return the outcomes in order.

    Tasks and outcomes travel as JSON, by the types that the function is annotated with: documents,
    dataclasses, numbers, and lists of these. The log tells every ten seconds how far they are, by
    the name of the function.

    Args:
        runner: where the tasks run.
        run: that they are part of, whose workspace is opened where the function is called.
        work: a function of a module, or a `partial` of one that binds further arguments by name.
            The process that calls it imports it; what is bound goes along with every task.
        tasks: what the function is called for.
        size: of the tasks, where it is known.

    Raises:
        PuffinAnnError: the first that a call raised.
    """
    function = _function_of(work)
    task_type, outcome_type = _types_of(function)
    payloads = [
        f"{number} {task_type.dump_json(task).decode()}" for number, task in enumerate(tasks)
    ]
    if not payloads:
        return []
    what = function.__name__.strip("_").replace("_", " ")
    with metering(what, len(payloads), size, lambda: Workspace.open(run).staging) as meter:
        answers = runner.run(partial(_call, work, run, meter.key), payloads)
    return [outcome_type.validate_json(answer) for answer in answers]


def _call(work: Callable[[Workspace, Any], Any], run: RunRef, key: str, payload: str) -> str:
    """Call a function for one task, in the process where the task runs."""
    task_type, outcome_type = _types_of(_function_of(work))
    number, _, task = payload.partition(" ")
    workspace = Workspace.open(run)
    with task_progress(key, int(number), lambda: workspace.staging):
        outcome = work(workspace, task_type.validate_json(task))
    return outcome_type.dump_json(outcome).decode()


def _function_of(work: Callable[..., Any]) -> Callable[..., Any]:
    return work.func if isinstance(work, partial) else work


@lru_cache(maxsize=64)
def _types_of(function: Callable[..., Any]) -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    """Return the types of a function's second argument, the task, and of what it returns."""
    hints = get_type_hints(function)
    outcome = hints.pop("return")
    _, task, *_ = hints.values()
    return TypeAdapter(task), TypeAdapter(outcome)
