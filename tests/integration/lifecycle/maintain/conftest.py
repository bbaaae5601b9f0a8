import pytest

from tests.support.servers.other_catalogs import catalog_beside, commit, publish_versions, register


@pytest.fixture
def elsewhere(words, tmp_path, known_catalogs):
    """The table of `words`, with one version published, as a second catalog has it."""
    publish_versions(words, "first")
    catalog = catalog_beside(known_catalogs, tmp_path, "other")
    table = register(catalog, words.refresh().metadata_location)
    commit(table, "ours, too")
    return table
