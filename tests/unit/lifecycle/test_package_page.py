"""The page of the package says where each command begins: by modules that there are."""

import re
from importlib.util import find_spec

import pytest

import puffin_ann.lifecycle as page
from tests.support.paths import ROOT

TEXT = page.__doc__ or ""
ELSEWHERE = {"search", "warm", "inspect", "size", "check", "compile"}
"""Commands that the page says do without the package."""


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\b[a-z_]+(?:\.[a-z_]+)+\b", TEXT))))
def test_what_the_page_names_is_a_module(name):
    assert find_spec(f"puffin_ann.lifecycle.{name}") is not None


def test_every_package_and_every_command_is_on_the_page():
    folder = ROOT / "include" / "puffin_ann"
    packages = {path.parent.name for path in (folder / "lifecycle").glob("*/__init__.py")}
    commands = {path.stem for path in (folder / "cli" / "commands").glob("*/[a-z]*.py")}
    assert packages <= set(re.findall(r"(?m)^    ([a-z]+)  ", TEXT))
    assert commands - ELSEWHERE == set(re.findall(r"(?m)^    puffin-ann ([a-z]+)  ", TEXT))
