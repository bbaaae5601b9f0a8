"""A table's store on S3: a real server on loopback, and a proxy before it that holds back."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.managers import BaseManager, BaseProxy
from pathlib import Path
from typing import Any

from benchmarks import lakehouse
from benchmarks.data import ROOT

VOLUMES = 80
"""Of 256 MB: a million rows are stored thrice while their index is assembled, and for LanceDB."""


class _FarProxy(BaseProxy):
    """`object_store.Proxy` in a process of its own: it shares no interpreter lock with us."""

    _exposed_ = ("__getattribute__", "__setattr__", "rounds", "reset", "close")

    def __getattr__(self, name: str) -> Any:
        return self._callmethod("__getattribute__", (name,))

    def hold_back(self, seconds: float) -> None:
        """Have each request wait from now on, and count anew."""
        self._callmethod("__setattr__", ("delay", seconds))
        self._callmethod("reset")

    def rounds(self) -> Any:
        """Return the longest chain of requests, of which each came after another's answer."""
        return self._callmethod("rounds")

    def close(self) -> None:
        """Take no more connections."""
        self._callmethod("close")


class _Processes(BaseManager):
    """What starts the proxy's process."""


@contextmanager
def on_s3(folder: Path) -> Iterator[Any]:
    """Have the tables of a folder's catalog on S3 for a while; gives the proxy."""
    os.environ["PATH"] += f"{os.pathsep}{ROOT / '.venv' / 'bin'}"
    from tests.support.servers import object_store

    prefix = f"PYICEBERG_CATALOG__{lakehouse.CATALOG.upper()}__"
    _Processes.register("Proxy", object_store.Proxy, _FarProxy)
    with object_store.seaweedfs(folder / "s3", VOLUMES) as endpoint, _Processes() as processes:
        proxy = processes.Proxy(endpoint)  # type: ignore[attr-defined]  # registered above
        for key, value in object_store.properties(proxy.endpoint).items():
            os.environ[prefix + key.upper().replace(".", "__").replace("-", "_")] = value
        lakehouse.configure(folder)
        os.environ[f"{prefix}WAREHOUSE"] = f"s3://{object_store.BUCKET}/warehouse"
        try:
            yield proxy
        finally:
            proxy.close()
