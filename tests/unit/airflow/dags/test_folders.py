"""Where a DAG file's declarations are: beside it, wherever Airflow keeps it."""

import runpy
from pathlib import Path

import pytest
from airflow.sdk import DAG

from puffin_ann.airflow.sensors import IcebergIndexStaleSensor
from puffin_ann.airflow.triggers.index import IndexStaleTrigger
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.declaration import folder as folders
from puffin_ann.errors import EnvironmentProblemError

DECLARATION = "table: demo.glove.words\ncolumn: embedding\nspark: {conf: {spark.a: secret}}\n"


@pytest.fixture
def bundle(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(folders, "_named", {})
    for folder, name in (("indexes", "words"), ("team", "others")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.yaml").write_text(DECLARATION)
    return tmp_path


def dags_of(bundle: Path, call: str) -> set[str]:
    file = bundle / "vectors.py"
    file.write_text(f"from puffin_ann.airflow import index_dags\n\nglobals().update({call})\n")
    found = runpy.run_path(str(file))
    return {value.dag_id for value in found.values() if isinstance(value, DAG)}


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ('index_dags(["build"])', {"ann_build_words", "ann_collect_vectors"}),
        (
            'index_dags(["build"], folder="team")',
            {"ann_build_others", "ann_collect_vectors_team"},
        ),
        ('index_dags(["build"], collect=None)', {"ann_build_words"}),
        (
            'index_dags(["build"], folder="./team/../indexes", collect=None)',
            {"ann_build_words"},
        ),
        (
            'index_dags(["build"]) | index_dags(["build"], folder="team")',
            {
                "ann_build_words",
                "ann_build_others",
                "ann_collect_vectors",
                "ann_collect_vectors_team",
            },
        ),
    ],
)
def test_three_lines_and_a_folder_beside_them_make_dags(bundle, call, found):
    assert dags_of(bundle, call) == found


def test_a_folder_that_is_not_there_is_an_error_of_the_dag_file(bundle):
    with pytest.raises(EnvironmentProblemError, match="absent"):
        dags_of(bundle, 'index_dags(folder="absent")')


@pytest.mark.parametrize(("folder", "index"), [(None, "words"), ("team", "others")])
def test_a_sensor_hands_the_triggerer_what_is_declared_beside_its_dag_file(bundle, folder, index):
    with DAG("waits", schedule=None) as dag:
        sensor = IcebergIndexStaleSensor(task_id="wait", index=index, folder=folder)
    dag.fileloc = str(bundle / "vectors.py")
    _, arguments = sensor.trigger().serialize()
    assert "secret" not in str(arguments)
    declared = IndexStaleTrigger(**arguments).asked()
    assert isinstance(declared, IndexDeclaration)
    assert (declared.name, declared.table) == (index, "demo.glove.words")
