"""The jars of Iceberg's own implementation, and JVMs that have them.

    python -m tests.support.servers.iceberg_java

fetches the jars into `.local/jars`, by Spark's own resolver and so from where the machine's
configuration says; tests do the same if it was not done before.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tests.support.paths import ROOT

COORDINATES = Path(__file__).with_name("jars.txt")
CACHE = ROOT / ".local" / "jars"

IVY_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="puffin-ann" module="tests-{group}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def coordinates() -> dict[str, list[str]]:
    """Coordinates by group, in the file's order."""
    groups: dict[str, list[str]] = {}
    for line in COORDINATES.read_text().splitlines():
        if line.startswith("["):
            group = groups.setdefault(line.strip("[] "), [])
        elif line.strip() and not line.startswith("#"):
            group.append(line.strip())
    return groups


def jars(group: str) -> list[Path]:
    """The files of a group of `jars.txt`, with what they depend on."""
    digest = hashlib.sha256(COORDINATES.read_bytes()).hexdigest()[:16]
    resolved = CACHE / f"resolved-{digest}.json"
    found = json.loads(resolved.read_text()) if resolved.exists() else {}
    paths = [Path(name) for name in found.get(group, ())]
    if not paths or not all(path.exists() for path in paths):
        found = fetch()
        resolved.write_text(json.dumps(found, indent=1))
        paths = [Path(name) for name in found[group]]
    return paths


def session_settings(warehouse: Path, cores: int) -> dict[str, str]:
    """The configuration of a local Spark session with Iceberg's own implementation."""
    return {
        "spark.master": f"local[{cores}]",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(map(str, jars("spark"))),
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.warehouse.dir": str(warehouse),
    }


def fetch() -> dict[str, list[str]]:
    """Resolve every group with Spark's resolver; by group, the paths of the jars.

    Not by `spark.jars.packages`: that knows no classifiers, and one group only.
    """
    with jvm() as java:
        configured = java.org.apache.spark.SparkConf()
        option = java.scala.Option.apply
        maven = java.org.apache.spark.util.MavenUtils
        repositories = option(configured.get("spark.jars.repositories", None))
        settings_file = configured.get("spark.jars.ivySettings", None)
        cache, log = option(str(CACHE)), java.System.err
        if settings_file is None:
            settings = maven.buildIvySettings(repositories, cache, True, log)
        else:
            settings = maven.loadIvySettings(settings_file, repositories, cache, log)
        ivy = java.org.apache.ivy.Ivy.newInstance(settings)
        return {group: _resolve(java, ivy, group) for group in coordinates()}


def _resolve(java, ivy, group: str) -> list[str]:
    CACHE.mkdir(parents=True, exist_ok=True)
    module = CACHE / f"ivy-{group}.xml"
    module.write_text(ivy_module(group, coordinates()[group]))
    report = ivy.resolve(
        java.java.io.File(str(module)).toURI().toURL(),
        java.org.apache.ivy.core.resolve.ResolveOptions(),
    )
    if report.hasError():
        raise RuntimeError(f"cannot resolve {group}: {list(report.getAllProblemMessages())}")
    return [
        str(getallartifactsreport.getLocalFile())
        for getallartifactsreport in report.getAllArtifactsReports()
    ]


def ivy_module(group: str, wanted: list[str]) -> str:
    """What Ivy is asked for: Spark has what its group depends on, other JVMs need that too."""
    artifacts: dict[tuple[str, ...], list[str]] = {}
    for jar in wanted:
        organisation, name, revision, *classifier = jar.split(":")
        artifacts.setdefault((organisation, name, revision), []).append("".join(classifier))
    scopes = "master" if group == "spark" else "master,compile,runtime"
    return IVY_MODULE.format(
        group=group,
        dependencies="\n".join(
            f"    <dependency org={quoteattr(organisation)} name={quoteattr(name)}"
            f' rev={quoteattr(revision)} conf="default->{scopes}">'
            + "".join(_artifact(name, classifier) for classifier in classifiers)
            + "</dependency>"
            for (organisation, name, revision), classifiers in artifacts.items()
        ),
    )


def _artifact(name: str, classifier: str) -> str:
    more = f" m:classifier={quoteattr(classifier)}" if classifier else ""
    return f'<artifact name={quoteattr(name)} type="jar" ext="jar"{more}/>'


@contextmanager
def jvm() -> Iterator:
    """A JVM with Spark's classes and configuration; gives its classes."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway(SparkConf().set("spark.master", "local[2]"))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)


if __name__ == "__main__":
    for name in coordinates():
        for path in jars(name):
            print(name, path)
