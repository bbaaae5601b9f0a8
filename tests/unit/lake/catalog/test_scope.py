"""Tables are told apart in the cache by what nobody but their owner can claim."""

from types import SimpleNamespace

import pytest
from pyiceberg.catalog.noop import NoopCatalog

from puffin_ann.lake.catalog.scope import scope_of

UUID = "00000000-0000-0000-0000-000000000001"
REST = {"type": "rest", "uri": "http://catalog:8181", "token": "one"}


def table(name=("demo", "words"), uuid=UUID, catalog=None, path="s3://lake/words/metadata/1.json"):
    """What of a table its name in the cache is made of, and what it must not be made of."""
    return SimpleNamespace(
        name=lambda: name,
        catalog=catalog or SimpleNamespace(name="prod", properties=REST),
        metadata=SimpleNamespace(table_uuid=uuid, location="s3://lake/words"),
        metadata_location=path,
    )


def catalog(name="prod", **properties):
    return SimpleNamespace(name=name, properties={**REST, **properties})


@pytest.mark.parametrize(
    "other",
    [
        table(name=("demo", "wordz")),
        table(name=("demo.words",)),
        table(uuid="00000000-0000-0000-0000-000000000002"),
        table(catalog=catalog("test")),
        table(catalog=catalog(uri="http://other:8181")),
        table(catalog=catalog(warehouse="other")),
    ],
)
def test_another_table_or_one_of_another_catalog_has_another_name(other):
    assert scope_of(other) != scope_of(table())


def test_later_states_of_a_table_and_other_credentials_have_the_same_name():
    later = table(path="s3://lake/words/metadata/2.json", catalog=catalog(token="two"))
    assert scope_of(later) == scope_of(table())


def test_a_table_without_a_catalog_is_named_by_where_its_metadata_lies():
    def static(path):
        return table(("static-table", path), catalog=NoopCatalog("static-table"), path=path)

    mine = static("s3://lake/words/metadata/1.json")
    assert scope_of(mine) == scope_of(static("s3://lake/words/metadata/2.json"))
    assert scope_of(mine) != scope_of(static("s3://lake/evil/metadata/1.json"))
