"""Iceberg's own REST catalog server, on loopback."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers import iceberg_java


@contextmanager
def rest_catalog(folder: Path, properties: dict[str, str]) -> Iterator[str]:
    """Run the REST catalog of Iceberg's tests over a JDBC catalog in `folder`; gives its uri.

    What `RESTCatalogServer` of Iceberg's test fixtures does, but that one listens on every
    interface and on a port that must be chosen before. The JVM ends with this process, however
    that ends.
    """
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    with (folder / "rest.log").open("wb") as log:
        port, token, process = launch_gateway(
            jarpath=str(next(_spark_jars().glob("py4j*.jar"))),
            classpath=":".join(map(str, class_path())),
            javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1"],
            die_on_exit=True,
            enable_auth=True,
            redirect_stdout=log,
            redirect_stderr=log,
            return_proc=True,
        )
        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )
        try:
            yield f"http://127.0.0.1:{_serve(gateway.jvm, folder, properties)}"
        except Exception as error:
            error.add_note((folder / "rest.log").read_text()[-3000:])
            raise
        finally:
            gateway.close()
            process.kill()
            process.wait()


def class_path(groups: Sequence[str] = ("rest",)) -> list[Path]:
    """The jars of these groups, and Spark's of Hadoop, which they need."""
    fetched = [jar for group in groups for jar in iceberg_java.jars(group)]
    return [*fetched, *_spark_jars().glob("hadoop-client-*.jar")]


def _spark_jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def _serve(java, folder: Path, properties: dict[str, str]) -> int:
    """Start the server in the JVM; returns its port."""
    backend = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{folder}/rest.db",
        "jdbc.schema-version": "V1",
        "clients": "1",  # SQLite has one writer
        **properties,
    }
    iceberg, jetty = java.org.apache.iceberg, java.org.eclipse.jetty
    catalog = iceberg.CatalogUtil.buildIcebergCatalog(
        "backend", backend, java.org.apache.hadoop.conf.Configuration()
    )
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
    handler = jetty.ee10.servlet.ServletContextHandler()
    handler.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
    server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
    server.setHandler(handler)
    server.start()
    return server.getURI().getPort()
