import pytest

from puffin_ann.mistyped import known, meant


@pytest.mark.parametrize(
    ("unknown", "asked"), [("nme", " (did you mean 'name'?)"), ("", ""), ("zzz", "")]
)
def test_the_name_that_was_probably_meant_is_asked_for(unknown, asked):
    assert meant(unknown, iter(["id", "name"])) == asked


def test_names_that_there_are_follow_the_one_probably_meant():
    assert known("nme", ["id", "name"], "it has") == "it has: id, name (did you mean 'name'?)"
    assert known("zzz", ["id"], "it has") == "it has: id"
    assert known("zzz", [], "it has") == "it has: none"
