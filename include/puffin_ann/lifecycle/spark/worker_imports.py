"""What Python workers need is imported here, before the daemon forks the first of them.

Only imports happen before a fork. None starts a thread, but for the one with which PyArrow's
allocator tidies up, and jemalloc sees to it itself that forks are safe. Thread pools, connections
and the S3 client are made where they are first used: in the workers.
"""

import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.abc import MetaPathFinder

MODULES = (
    "puffin_ann.lifecycle.build.stages",
    "puffin_ann.lifecycle.refresh.stages",
    "puffin_ann.engines.vamana",  # the default; other engines are imported where they are used
    "puffin_ann.ann.vamana.incremental.insert",
    "puffin_ann.ann.vamana.build",
)
CATALOGS = {"rest": "pyiceberg.catalog.rest", "sql": "pyiceberg.catalog.sql"}
"""Modules that PyIceberg imports when it connects to a catalog of a type."""


def prepare() -> None:
    """Import what tasks need."""
    gc.disable()  # what is imported stays: walking through it takes a quarter of the time
    # Spark reads the port from standard output: nothing that is imported may write there.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            _import()
        except Exception:
            # The task that needs the module will fail with a message that reaches the user.
            logging.getLogger("puffin_ann").warning("workers import for themselves", exc_info=True)
        import_module("pyspark.daemon")
    # Spark collects garbage after every task: without walking through all modules each time, and
    # without writing to memory that the workers share.
    gc.freeze()
    gc.enable()


def serve() -> None:
    """Fork workers as Spark asks for them, until it ends."""
    from pyspark import daemon

    manager: Callable[[], None] = daemon.manager
    manager()


def _import() -> None:
    with _unseen("pandas"):
        _import_arrow()
    for name in MODULES:
        import_module(name)
    for kind in _catalog_types() & CATALOGS.keys():
        import_module(CATALOGS[kind])


def _import_arrow() -> None:
    """Import PyArrow, and have it look for pandas, which it does with its first value.

    No task of ours needs pandas, and it takes as long to import as all of PyArrow and NumPy. It is
    imported even so where a data frame is asked for.
    """
    import pyarrow as pa

    pa.scalar(0)


@contextlib.contextmanager
def _unseen(package: str) -> Iterator[None]:
    """Have imports of an optional package fail for as long."""

    class Finder(MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == package:
                raise ModuleNotFoundError(f"{package} is not imported yet", name=package)

    finder = Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _catalog_types() -> set[str]:
    """Return the types of the catalogs that PyIceberg is configured for on this machine."""
    from pyiceberg.catalog import infer_catalog_type
    from pyiceberg.utils.config import Config

    config = Config()
    types: set[str] = set()
    for name in config.config.get("catalog") or {}:
        found = config.get_catalog_config(name) or {}
        with contextlib.suppress(ValueError):  # it has no uri, or one of no known kind
            kind = found.get("type") or infer_catalog_type(name, found)
            types.add(str(getattr(kind, "value", kind)).lower())
    return types
