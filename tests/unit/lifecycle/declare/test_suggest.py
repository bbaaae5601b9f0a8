from dataclasses import replace

import pytest

from puffin_ann.declaration import parse_declaration
from puffin_ann.errors import BadInputError
from puffin_ann.lifecycle.declare.look import Seen
from puffin_ann.lifecycle.declare.suggest import suggest
from puffin_ann.lifecycle.declare.write import as_yaml, write

SEEN = Seen(
    table="lake.shop.Product images",
    column="embedding",
    kind="list<float>",
    files=1,
    rows=1_000_000,
    looked_at=1000,
    dimension=768,
    shortest=0.9998,
    longest=1.0002,
    is_counts=False,
    keys=("product_id", "url"),
)


def suggested(seen=SEEN, **given):
    return {line.field: line.value for line in suggest(seen, **given)}


def test_what_is_suggested_is_a_valid_declaration():
    declared = parse_declaration(suggested(replace(SEEN, table="lake.shop.products")), source="it")
    assert (declared.name, declared.table) == ("products", "lake.shop.products")
    assert (declared.column, declared.key, declared.metric) == ("embedding", "product_id", "cosine")


def test_an_index_is_called_as_its_table_in_the_characters_that_names_have():
    assert suggested()["name"] == "product_images"
    assert suggested(replace(SEEN, table="lake.shop.2026-vectors"))["name"] == "index_2026_vectors"


def test_a_second_index_of_a_table_is_called_by_its_column_too():
    assert suggested(taken={"product_images"})["name"] == "product_images_embedding"


def test_it_is_said_of_how_many_rows_a_key_was_seen_to_tell_them_apart():
    (key,) = (line for line in suggest(SEEN) if line.field == "key")
    assert key.reason == "no value came twice in 1,000 of 1,000,000 rows; nor in url"


def test_a_name_that_is_taken_or_none_is_refused():
    with pytest.raises(BadInputError, match="'mine' is declared already"):
        suggest(SEEN, name="mine", taken={"mine"})
    with pytest.raises(BadInputError, match="no name of an index"):
        suggest(SEEN, name="Mine!")


@pytest.mark.parametrize(
    ("changes", "metric"),
    [
        ({}, "cosine"),
        ({"shortest": 3.0, "longest": 9.0}, "cosine"),
        ({"shortest": 200.0, "longest": 512.0, "is_counts": True}, "l2"),
        ({"shortest": 1.0, "longest": 1.0, "is_counts": True}, "cosine"),
    ],
)
def test_lengths_and_counts_suggest_the_metric(changes, metric):
    assert suggested(replace(SEEN, **changes))["metric"] == metric


def test_what_is_given_is_taken():
    found = suggested(name="mine", key="url", metric="ip")
    assert (found["name"], found["key"], found["metric"]) == ("mine", "url", "ip")


def test_rows_that_no_column_tells_apart_have_no_key():
    assert "key" not in suggested(replace(SEEN, keys=()))


def test_a_shard_has_at_most_512_mib_of_vectors():
    assert suggested(replace(SEEN, rows=100))["shards"] == 1
    found = suggested()["shards"]
    size = SEEN.rows * SEEN.dimension * 4
    assert size / found <= 512 << 20 < size / (found - 1)


def test_a_file_has_a_reason_for_each_line_and_never_overwrites_another(tmp_path):
    lines = suggest(replace(SEEN, table="lake.shop.products"))
    path = tmp_path / "indexes" / "products.yaml"
    declared = write(lines, path)
    assert declared.parameters_of("vamana").R == 64
    assert path.read_text() == as_yaml(lines)
    assert all("  # " in line for line in path.read_text().splitlines())
    with pytest.raises(BadInputError, match="is there already"):
        write(lines, path)


def test_a_column_called_anything_stays_within_its_line(tmp_path):
    odd = replace(SEEN, table="lake.shop.odd", column="a: #\n- b", kind="list<float>", keys=("é",))
    declared = write(suggest(odd), tmp_path / "odd.yaml")
    assert (declared.column, declared.key) == ("a: #\n- b", "é")


def test_a_file_that_would_not_be_found_is_refused_with_one_that_would(tmp_path):
    lines = suggest(replace(SEEN, table="lake.shop.products"), name="products")
    with pytest.raises(BadInputError, match=r"indexes/products\.yaml, for one"):
        write(lines, tmp_path / "indexes")
    assert not (tmp_path / "indexes").exists()


def test_the_vectors_of_a_small_table_are_more_than_no_megabytes():
    lines = {line.field: line for line in suggest(replace(SEEN, rows=1, dimension=8))}
    assert lines["shards"].reason == "1 kB of vectors, at most 512 MiB a shard"
    assert lines["table"].reason == "1 row"
    lines = {line.field: line for line in suggest(replace(SEEN, rows=20_000, dimension=8))}
    assert lines["shards"].reason == "640 kB of vectors, at most 512 MiB a shard"
