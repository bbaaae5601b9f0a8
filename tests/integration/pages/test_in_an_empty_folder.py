"""Commands and snippets of pages that make all that they need do what the pages show."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.pages import run_page
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

IN_AN_EMPTY_FOLDER = ("docs/runbook.md", "docs/first-index.md")


@pytest.mark.parametrize("page", IN_AN_EMPTY_FOLDER)
def test_a_page_is_read_in_an_empty_folder(page, tmp_path):
    (tmp_path / "include").symlink_to(ROOT / "include")
    local = tmp_path / ".local"
    local.mkdir()
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PUFFIN_ANN_CACHE_DIR": str(local / "cache"),
        "PYICEBERG_HOME": str(tmp_path),
    }
    run_page(ROOT / page, tmp_path, environment)
