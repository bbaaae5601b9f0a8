"""Lineage for OpenLineage, where its provider is installed: nothing else imports that."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puffin_ann.lifecycle.report.lineage import Lineage


def operator_lineage(lineage: "Lineage | None") -> Any:
    """Return an `OperatorLineage`: the table that was read, the index that was published.

    Only the provider asks an operator for it, so that the provider is installed then.

    Args:
        lineage: None where nothing was published.
    """
    made = import_module("airflow.providers.openlineage.extractors").OperatorLineage
    if lineage is None:
        return made()
    return made(inputs=[_table(lineage)], outputs=[_index(lineage)])


def _table(lineage: "Lineage") -> Any:
    events, facets = _client()
    given = {
        "version": facets.dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=str(lineage.table_version)
        )
    }
    if lineage.alias is not None:
        symlinks = facets.symlinks_dataset
        alias = symlinks.Identifier(**lineage.alias.model_dump(), type="TABLE")
        given["symlinks"] = symlinks.SymlinksDatasetFacet(identifiers=[alias])
    return events.InputDataset(**lineage.table.model_dump(), facets=given)


def _index(lineage: "Lineage") -> Any:
    events, facets = _client()
    version = facets.dataset_version_dataset.DatasetVersionDatasetFacet
    statistics = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    return events.OutputDataset(
        **lineage.index.model_dump(),
        facets={}
        if lineage.index_version is None
        else {"version": version(datasetVersion=str(lineage.index_version))},
        outputFacets={"outputStatistics": statistics(rowCount=lineage.rows, size=lineage.bytes)},
    )


def _client() -> tuple[Any, Any]:
    return import_module("openlineage.client.event_v2"), import_module(
        "openlineage.client.facet_v2"
    )
