"""PySpark is imported from its folder where that is the same PySpark, and from no other."""

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from puffin_ann.lifecycle.spark.import_path import unpack_archives
from tests.support.paths import ROOT

PY4J = "py4j-0.10.9.9-src.zip"


def package(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


def archives(home: Path) -> list[str]:
    """Make what Spark puts in front of a path, and return it."""
    made = []
    for name, held in [("pyspark.zip", "pyspark/__init__.py"), (PY4J, "py4j/__init__.py")]:
        place = home / "python" / "lib" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr(held, "")
        made.append(str(place))
    return [*made, str(home / "jars" / "spark-core_2.13-4.1.4.jar")]


def test_the_sources_of_a_distribution_take_the_place_of_its_archive(tmp_path):
    home = tmp_path / "spark"
    spark, py4j, jar = archives(home)
    package(home / "python" / "pyspark", "4.1.4")
    other = tmp_path / "site"
    package(other / "pyspark", "3.5.0")
    found = unpack_archives(["here", spark, py4j, jar, str(other)])
    assert found == ["here", str(home / "python"), py4j, str(other)]


def test_what_pip_installed_is_found_where_it_is_anyway(tmp_path):
    site = tmp_path / "site"
    home = package(site / "pyspark", "4.1.4")
    spark, py4j, jar = archives(home)
    package(site / "py4j", "0.10.9.9")
    (home / "python" / "pyspark").mkdir()
    (home / "python" / "pyspark" / "shell.py").touch()
    assert unpack_archives([spark, py4j, jar, "mine", str(site)]) == ["mine", str(site)]


def test_a_home_of_spark_may_be_a_link(tmp_path):
    site = tmp_path / "site"
    home = package(site / "pyspark", "4.1.4")
    (tmp_path / "spark").symlink_to(home)
    spark, _, _ = archives(tmp_path / "spark")
    assert unpack_archives([spark, str(site)]) == [str(site)]


@pytest.mark.parametrize("version", ["0.10.9.7", "0.10.9.9.1"])
def test_archives_of_another_spark_than_the_one_installed_stay(tmp_path, version):
    spark, py4j, _ = archives(tmp_path / "spark")
    site = tmp_path / "site"
    package(site / "pyspark", "4.1.4")
    package(site / "py4j", version)
    assert unpack_archives([spark, py4j, str(site)]) == [spark, py4j, str(site)]


def test_archives_that_alone_have_the_modules_stay(tmp_path):
    spark, py4j, _ = archives(tmp_path / "spark")
    (tmp_path / "pyspark.zip").touch()  # as YARN puts it into a container
    given = [str(tmp_path / "pyspark.zip"), spark, py4j]
    assert unpack_archives(given) == given


def test_a_process_that_spark_started_imports_no_module_from_an_archive():
    home = Path(find_spec("pyspark").origin).parent
    lib = home / "python" / "lib"
    (jar,) = (home / "jars").glob("spark-core_*.jar")
    front = [str(lib / "pyspark.zip"), *map(str, lib.glob("py4j-*.zip")), str(jar)]
    program = (
        "import sys\n"
        "from puffin_ann.lifecycle.spark.import_path import prefer_folders\n"
        "prefer_folders()\n"
        "import pyspark, py4j\n"
        "print(pyspark.__file__, py4j.__file__)\n"
        "print([path for path in sys.path_importer_cache if path.endswith(('.zip', '.jar'))])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*front, str(ROOT / "include")])},
        capture_output=True,
        text=True,
        check=True,
    )
    places, cached = result.stdout.splitlines()
    assert places.split()[0] == str(home / "__init__.py")
    assert ".zip" not in places
    assert all(entry not in cached for entry in front)
