"""Each package has a page that names its files, so that nobody has to guess what is in them."""

import ast
import re

import pytest

from tests.support.paths import ROOT

LIBRARY = ROOT / "include" / "puffin_ann"
PACKAGES = sorted(path.parent for path in LIBRARY.rglob("__init__.py"))
LISTED_ELSEWHERE = {LIBRARY, LIBRARY / "cli" / "commands", LIBRARY / "spark_apps"}
"""By import-linter's contract, by `--help`, and by the stages."""


def page_of(package) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(LIBRARY)))
def test_a_package_has_a_page_that_names_its_files(package):
    page = page_of(package)
    assert page
    if package in LISTED_ELSEWHERE:
        return
    files = {path.stem for path in package.glob("*.py")} - {"__init__"}
    parts = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    loops = {name for name in files if name.startswith("kernels_")}  # beside what calls them
    named = set(re.findall(r"\w+", page))
    assert not (files | parts) - loops - named
