"""What tests of commands share."""

import pytest

from tests.support.lifecycle import builds


@pytest.fixture
def keyed(words):
    """The table of words, with an index that has a key."""
    builds.build(builds.declaration(key="word"), "run")
    return words.refresh()
