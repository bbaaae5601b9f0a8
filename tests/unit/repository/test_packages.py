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


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(LIBRARY)))
def test_a_page_names_no_module_that_is_not_there(package):
    """A dotted name on a page is one of the library's, from the root or from the package itself."""
    named = re.findall(r"(?<![\w.])([a-z_]+(?:\.[a-z_]+)+)(?![\w.(])", page_of(package))
    tops = {path.stem for base in (LIBRARY, package) for path in base.iterdir()}
    for name in named:
        first, *rest = name.split(".")
        if first not in tops:
            continue  # of another library, or the name of a file
        bases = [base for base in (LIBRARY, package) if (base / first).exists()]
        steps = [path for base in bases for path in _steps(base / first, rest)]
        assert steps or not bases, f"{name} is not there"


def _steps(folder, names):
    """Return the module that dotted names lead to below a folder, if there is one."""
    if not names:
        return [folder]
    head, *rest = names
    if (folder / head).is_dir():
        return _steps(folder / head, rest)
    module = folder / f"{head}.py"
    if not module.exists():
        source = (folder / "__init__.py").read_text()
        return [folder] if re.search(rf"\b{head}\b", source) else []
    return [module] if not rest or re.search(rf"\b{rest[0]}\b", module.read_text()) else []
