"""What OpenLineage's provider is told of a publication, where it is installed.

It is not among what this project installs: these are stand-ins with the fields of its classes.
"""

import sys
from types import SimpleNamespace

import pytest

from puffin_ann.airflow.operators.publish import PublishOperator
from puffin_ann.declaration import load_declaration
from tests.support.lifecycle.figures import LINEAGE


@pytest.fixture
def provider(monkeypatch):
    """The modules of the provider and of its client, as far as they are used."""

    def made(kind: str):
        return lambda **fields: SimpleNamespace(kind=kind, **fields)

    modules = {
        "airflow.providers.openlineage.extractors": {
            "OperatorLineage": lambda inputs=(), outputs=(): (list(inputs), list(outputs))
        },
        "openlineage.client.event_v2": {
            "InputDataset": made("input"),
            "OutputDataset": made("output"),
        },
        "openlineage.client.facet_v2": {
            "dataset_version_dataset": SimpleNamespace(DatasetVersionDatasetFacet=made("version")),
            "symlinks_dataset": SimpleNamespace(
                Identifier=made("identifier"), SymlinksDatasetFacet=made("symlinks")
            ),
            "output_statistics_output_dataset": SimpleNamespace(
                OutputStatisticsOutputDatasetFacet=made("statistics")
            ),
        },
    }
    for name, fields in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**fields))


@pytest.fixture
def publish(declarations) -> PublishOperator:
    declared = load_declaration(declarations / "words.yaml")
    return PublishOperator(task_id="publish", declaration=declared)


def test_the_table_was_read_and_the_index_published(publish, provider):
    publish._lineage = LINEAGE
    ((read,), (made,)) = publish.get_openlineage_facets_on_complete(None)
    assert (read.kind, read.namespace, read.name) == ("input", "s3://lake", "glove/words")
    assert read.facets["version"].datasetVersion == "11"
    (alias,) = read.facets["symlinks"].identifiers
    assert (alias.namespace, alias.name, alias.type) == (
        "http://catalog:8181",
        "glove.words",
        "TABLE",
    )
    assert (made.kind, made.namespace, made.name) == ("output", "s3://lake", "glove/words#words")
    assert made.facets["version"].datasetVersion == "12"
    statistics = made.outputFacets["outputStatistics"]
    assert (statistics.rowCount, statistics.size) == (20_000, 9_000_000)


def test_a_catalog_without_an_address_gives_the_table_no_second_name(publish, provider):
    publish._lineage = LINEAGE.model_copy(update={"alias": None})
    ((read,), _) = publish.get_openlineage_facets_on_complete(None)
    assert set(read.facets) == {"version"}


def test_a_task_that_published_nothing_has_none(publish, provider):
    assert publish.get_openlineage_facets_on_complete(None) == ([], [])


def test_without_the_provider_nothing_of_it_is_imported(publish):
    assert not [name for name in sys.modules if name.startswith("openlineage")]
