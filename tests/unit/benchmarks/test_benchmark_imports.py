"""Families tell PyIceberg where their catalog is before anything imports it."""

import ast
from pathlib import Path

import benchmarks

FOLDER = Path(benchmarks.__file__).parent
WITHOUT_PYICEBERG = ("puffin_ann.ann", "puffin_ann.settings")


def imported_too_early(path):
    """Return what functions import that configure a catalog, and have not yet."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        configured = [
            node.lineno
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "lakehouse.configure"
        ]
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom) and configured and node.lineno < min(configured):
                name = node.module or ""
                if name.startswith("puffin_ann") and not name.startswith(WITHOUT_PYICEBERG):
                    yield f"{path.name}: {name}"


def test_no_family_imports_pyiceberg_before_it_is_told_where_the_catalog_is():
    families = sorted(FOLDER.glob("*.py"))
    assert sum("lakehouse.configure" in path.read_text() for path in families) > 5
    assert [early for path in families for early in imported_too_early(path)] == []
