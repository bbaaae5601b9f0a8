"""A table's store on S3: a real server on loopback, and a proxy before it that holds back."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import lakehouse
from benchmarks.data import ROOT


@contextmanager
def on_s3(folder: Path) -> Iterator[Any]:
    """Have the tables of a folder's catalog on S3 for a while; gives the proxy."""
    os.environ["PATH"] += f"{os.pathsep}{ROOT / '.venv' / 'bin'}"
    from tests.support import object_store

    prefix = f"PYICEBERG_CATALOG__{lakehouse.CATALOG.upper()}__"
    with object_store.seaweedfs(folder / "s3") as endpoint:
        proxy = object_store.Proxy(endpoint)
        for key, value in object_store.properties(proxy.endpoint).items():
            os.environ[prefix + key.upper().replace(".", "__").replace("-", "_")] = value
        lakehouse.configure(folder)
        os.environ[f"{prefix}WAREHOUSE"] = f"s3://{object_store.BUCKET}/warehouse"
        try:
            yield proxy
        finally:
            proxy.close()
