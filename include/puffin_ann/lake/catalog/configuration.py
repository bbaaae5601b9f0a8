"""What PyIceberg's configuration says of catalogs, and what is wrong with it.

That it can be read is known here: `puffin_ann.lake` requires so before it is imported.
"""

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from pyiceberg import catalog
from pyiceberg.catalog import CatalogType
from pyiceberg.utils.config import Config

from puffin_ann.errors import CatalogUnavailableError
from puffin_ann.imports.pyiceberg_configuration import FILE, LOOKS_LIKE, unreadable, where_it_is
from puffin_ann.redaction import shown_cause
from puffin_ann.wording import names_known


def described() -> Mapping[str, Any]:
    """Return what PyIceberg knows of catalogs, by name in small letters.

    Raises:
        CatalogUnavailableError: the configuration has something else in the place of catalogs.
    """
    found = catalog._ENV_CONFIG.config.get("catalog") or {}
    if not isinstance(found, dict):
        raise CatalogUnavailableError(
            f"{where_it_is()}: 'catalog' is {found!r}, and describes no catalog; {LOOKS_LIKE}"
        )
    return found


def settings_of(name: str) -> dict[str, Any]:
    """Return what PyIceberg knows of a catalog; empty if it is not described.

    Raises:
        CatalogUnavailableError: the configuration has something else in the place of its settings.
    """
    found = described().get(name.lower()) or {}
    if not isinstance(found, dict):
        raise CatalogUnavailableError(
            f"{where_it_is()}: catalog {name!r} has one value in the place of settings; "
            f"{LOOKS_LIKE}"
        )
    return found


def read_again() -> None:
    """Read the configuration anew: a catalog may have been described since the process began.

    Raises:
        CatalogUnavailableError: it cannot be read any more.
    """
    try:
        catalog._ENV_CONFIG = Config()
    except Exception as error:
        raise unreadable(error) from shown_cause(error)


def not_configured(name: str, error: ValueError) -> CatalogUnavailableError:
    """Return the error of a catalog that PyIceberg makes nothing of: it is unknown, or amiss."""
    there = sorted(described())
    if name.lower() in there:
        said = " ".join(str(error).split())
        return CatalogUnavailableError(
            f"catalog {name!r} is configured, but not so that PyIceberg can connect to it: {said}; "
            f"correct its settings in {where_it_is()}{_types(said)}"
        )
    return CatalogUnavailableError(
        f"catalog {name!r} is not configured: set PYICEBERG_CATALOG__{name.upper()}__URI, "
        f"or describe it in the {FILE} that PYICEBERG_HOME points to",
        # A reader of one DAG's log must not learn of other catalogs.
        aside=names_known(name, there, "configured are"),
    )


def wrong_file_io(name: str) -> str:
    """Return words for a `py-io-impl` of a catalog that cannot be imported; else nothing."""
    given = str(settings_of(name).get("py-io-impl") or "")
    module, _, wanted = given.rpartition(".")
    if not given:
        return ""
    with suppress(Exception):  # of any kind: it is a module of others, or no name of one
        if hasattr(import_module(module), wanted):
            return ""
    return (
        f"catalog {name!r}: py-io-impl is {given!r}, which cannot be imported; leave it out, or "
        "name a class of PyIceberg's or one that is installed, such as "
        "'pyiceberg.io.pyarrow.PyArrowFileIO'"
    )


def _types(said: str) -> str:
    if "CatalogType" not in said:
        return ""
    return f"; types are: {', '.join(kind.value for kind in CatalogType)}"
