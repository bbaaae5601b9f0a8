import pytest

from puffin_ann.wording import meant, names_known


@pytest.mark.parametrize(
    ("unknown", "asked"), [("nme", " (did you mean 'name'?)"), ("", ""), ("zzz", "")]
)
def test_the_name_that_was_probably_meant_is_asked_for(unknown, asked):
    assert meant(unknown, iter(["id", "name"])) == asked


def test_names_that_there_are_follow_the_one_probably_meant():
    assert names_known("nme", ["id", "name"], "it has") == "it has: id, name (did you mean 'name'?)"
    assert names_known("zzz", ["id"], "it has") == "it has: id"
    assert names_known("zzz", [], "it has") == "it has: none"
