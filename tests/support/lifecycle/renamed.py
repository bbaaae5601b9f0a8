"""Declarations under another name."""

from puffin_ann.declaration import parse_declaration
from tests.support.lifecycle import builds

NEW = "new_name"


def named(name: str, **changes):
    data = {**builds.declaration(**changes).model_dump(mode="json"), "name": name}
    return parse_declaration(data, source="test")
