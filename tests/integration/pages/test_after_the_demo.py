"""Commands and snippets of pages that are read after `make demo` do what the pages show."""

import os
import subprocess
import sys

import demo
import home
import pytest

from tests.support.pages import run_page
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

AFTER_THE_DEMO = ("README.md", "docs/query.md", "docs/operate.md", "docs/capacity.md")
"""Read one after the other with the table of `make demo`, whose index is built in one process."""


@pytest.fixture(scope="module")
def after_the_demo(tmp_path_factory):
    """A folder like a checkout after `make demo`, and its environment."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("include", "dags"):
        (folder / name).symlink_to(ROOT / name)
    local = folder / ".local"
    local.mkdir()
    environment = home.environment(local)
    home.write_catalog(local)
    code = "import demo; demo.create_table()"
    path = os.pathsep.join([str(ROOT / "include" / "local"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", code], env={**environment, "PYTHONPATH": path}, check=True
    )
    subprocess.run(["puffin-ann", "refresh", demo.INDEX], env=environment, check=True)
    return folder, environment


@pytest.mark.parametrize("page", AFTER_THE_DEMO)
def test_a_page_is_read_after_the_demo(page, after_the_demo):
    folder, environment = after_the_demo
    run_page(ROOT / page, folder, environment)
