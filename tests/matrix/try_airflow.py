"""A cell of `make test-matrix`: what Airflow makes of the wheel and of a DAG file with a folder."""

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

DAG_FILE = """\
from puffin_ann.airflow import index_dags

globals().update(index_dags())
"""
FOLLOWING = """\
from airflow.sdk import DAG, task
from puffin_ann.airflow import index_asset

with DAG("after_refresh", schedule=[index_asset("demo.glove.words", "words")]):
    @task
    def use(): ...

    use()
"""
DECLARATION = "table: demo.glove.words\ncolumn: embedding\n"
MODULES = (
    "puffin_ann.airflow.metrics",
    "puffin_ann.airflow.sensors",
    "puffin_ann.airflow.triggers.index",
    "puffin_ann.airflow.triggers.table",
    "puffin_ann.airflow.page.application",
)


def write_dags(place: Path) -> None:
    """Write DAG files, and a declaration in the folder beside them, as a bundle has them."""
    (place / "indexes").mkdir(parents=True)
    (place / "indexes" / "words.yaml").write_text(DECLARATION)
    (place / "vectors.py").write_text(DAG_FILE)
    (place / "following.py").write_text(FOLLOWING)


def bag_of(place: Path) -> Any:
    """Return what Airflow finds in a folder; where it looks differs from version to version."""
    try:
        bags = import_module("airflow.dag_processing.dagbag")
    except ImportError:
        bags = import_module("airflow.models.dagbag")
        return bags.DagBag(str(place), include_examples=False)
    return bags.BundleDagBag(str(place), bundle_path=place, bundle_name="tried")


def serialise(dag: Any) -> None:
    """Write a DAG as the DAG processor stores it, and read it as the scheduler does."""
    module = import_module("airflow.serialization.serialized_objects")
    serialised = getattr(module, "DagSerialization", None) or module.SerializedDAG
    serialised.from_dict(json.loads(json.dumps(serialised.to_dict(dag))))


def plugins() -> tuple[list[str], dict[str, str]]:
    """Return the names of the plugins that Airflow loads, and its errors."""
    manager: Any = import_module("airflow.plugins_manager")
    if hasattr(manager, "_get_plugins"):
        found, errors = manager._get_plugins()
    else:
        manager.ensure_plugins_loaded()
        found, errors = manager.plugins, manager.import_errors
    return [plugin.name for plugin in found], errors


def main(place: Path) -> None:
    """Check all of it; a failed assertion is the cell's failure."""
    import puffin_ann

    assert "site-packages" in (puffin_ann.__file__ or ""), puffin_ann.__file__
    write_dags(place)
    bag = bag_of(place)
    assert not bag.import_errors, bag.import_errors
    kinds = ("build", "evaluate", "maintain", "refresh")
    ids = ["after_refresh", *(f"ann_{kind}_words" for kind in kinds)]
    assert sorted(bag.dags) == sorted(ids), sorted(bag.dags)
    for dag in bag.dags.values():
        serialise(dag)
    assert plugins() == (["puffin_ann"], {}), plugins()
    providers: Any = import_module("airflow.providers_manager")
    assert providers.ProvidersManager().providers["puffin-ann"].version == puffin_ann.__version__
    for module in MODULES:
        import_module(module)
    from puffin_ann.airflow.metrics import _stats

    _stats().gauge("puffin_ann.index.coverage", 1.0, tags={"index": "words"})


if __name__ == "__main__":
    chosen = Path(sys.argv[1])
    os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(chosen)
    main(chosen)
