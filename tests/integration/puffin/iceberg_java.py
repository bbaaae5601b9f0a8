"""The jars of Iceberg's own implementation, and a JVM that has them.

    python tests/integration/puffin/iceberg_java.py

fetches the jars into `.local/jars`, by Spark's own resolver and so from where the machine's
configuration says; tests do the same if it was not done before.
"""

from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COORDINATES = Path(__file__).with_name("jars.txt")
CACHE = ROOT / ".local" / "jars"


def coordinates() -> list[str]:
    lines = (line.strip() for line in COORDINATES.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def jars() -> list[Path]:
    """The files of the named artifacts, without what they depend on: Spark has that."""
    wanted = [CACHE / "jars" / path_of(one) for one in coordinates()]
    if not all(path.exists() for path in wanted):
        fetch()
    return wanted


def path_of(coordinate: str) -> str:
    """The name that Ivy gives the file of an artifact."""
    group, artifact, version = coordinate.split(":")
    return f"{group}_{artifact}-{version}.jar"


def fetch() -> None:
    with jvm({"spark.jars.packages": ",".join(coordinates()), "spark.jars.ivy": str(CACHE)}):
        pass


@contextmanager
def jvm(configuration: dict[str, str]):
    """A JVM with Spark's classes; gives its gateway."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().set("spark.master", "local[2]")
    gateway = launch_gateway(conf.setAll(list(configuration.items())))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)


if __name__ == "__main__":
    for path in jars():
        print(path.relative_to(ROOT))
