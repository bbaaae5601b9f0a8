"""JSON that others wrote is refused where readers could take it differently, and never crashes."""

import json
import re

import pytest

from puffin_ann.blobs.encoding.mapped import MANIFEST, open_folder
from puffin_ann.errors import LocalCopyError
from puffin_ann.foreign_json import long_of, objects_of, parse
from puffin_ann.search.cache.integrity import MARK, Seal

DEEP = "[" * 200_000


@pytest.mark.parametrize(
    "text",
    [DEEP, '{"a":' * 8000, "NaN", "[-Infinity]", "1e999", '{"a":1,"a":2}', "", "9" * 5000, b"\xff"],
)
def test_what_readers_could_take_differently_is_no_value(text):
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, "ü"]}, [], -1, "text"])
def test_sound_json_is_read_as_it_is(value):
    assert parse(json.dumps(value)) == parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize("value", [2**63, True, 1.0, "1", None, {}])
def test_what_is_no_long_is_none_and_is_told_in_short(value):
    with pytest.raises(ValueError, match=r"^.{1,100} is not a 64-bit integer$"):
        long_of(value)


@pytest.mark.parametrize("value", ["ab", 7, {}, [1], [{}, None]])
def test_what_is_no_list_of_objects_is_none(value):
    with pytest.raises(ValueError, match=re.escape("`a` is not a list of JSON objects")):
        objects_of({"a": value}, "a")


@pytest.mark.parametrize("text", [DEEP, "[]", "{}", '{"files": 7, "proved_at": 1}'])
def test_a_seal_that_cannot_be_read_is_none(tmp_path, text):
    (tmp_path / MARK).write_text(text)
    assert Seal.of(tmp_path) is None


@pytest.mark.parametrize("text", [DEEP, "[]", "{}"])
def test_an_unpacked_shard_whose_list_cannot_be_read_is_thrown_away(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(LocalCopyError):
        open_folder(tmp_path)
