"""Name the tables of catalogs."""

from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.typedef import Identifier

from puffin_ann.errors import PuffinAnnError, TableNotFoundError
from puffin_ann.lake.catalog.configuration import described
from puffin_ann.lake.catalog.tables import open_catalog, unavailable
from puffin_ann.lake.catalog.timeouts import ask_until_answered, within
from puffin_ann.redaction import shown_cause
from puffin_ann.settings import settings


def catalog_names() -> list[str]:
    """Return the names of the catalogs that PyIceberg's configuration describes, sorted."""
    return sorted(described())


def table_names(where: str) -> list[str]:
    """Return the tables of a catalog, or of a namespace and those below it, sorted.

    Args:
        where: `catalog`, or `catalog.namespace`.

    Returns:
        Names as `load_table` takes them.

    Raises:
        TableNotFoundError: the catalog has no such namespace.
        CatalogUnavailableError: it is not configured, or does not answer in time.
    """
    name, _, namespace = where.partition(".")

    def ask() -> list[str]:
        catalog = open_catalog(name)
        try:
            return sorted(ask_until_answered(lambda: list(_walk(catalog, namespace))))
        except NoSuchNamespaceError as error:
            raise TableNotFoundError(
                f"catalog {name!r} has no namespace {namespace!r}"
            ) from shown_cause(error)
        except PuffinAnnError:
            raise
        except Exception as error:
            raise unavailable(name, error) from shown_cause(error)

    return within(settings().catalog_seconds, name, ask)


def _walk(catalog: Catalog, namespace: str) -> Iterator[str]:
    """Yield the names of the tables of a namespace, and of all below it."""
    todo: list[Identifier] = [tuple(namespace.split("."))] if namespace else _below(catalog, ())
    seen = set(todo)
    while todo:
        current = todo.pop()
        for identifier in catalog.list_tables(current):
            yield ".".join((catalog.name, *identifier))
        # Some catalogs answer with all levels below, others with the next one.
        for below in _below(catalog, current):
            if below not in seen:
                seen.add(below)
                todo.append(below)


def _below(catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    return [found for found in catalog.list_namespaces(namespace) if found != namespace]
