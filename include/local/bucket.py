"""Create a bucket in the S3 store that PyIceberg is configured for; docker-compose.yaml runs it."""

import os
import sys

from home import CATALOG
from pyarrow.fs import S3FileSystem


def create_bucket(name: str) -> None:
    """Create the bucket, unless it is there."""
    prefix = f"PYICEBERG_CATALOG__{CATALOG.upper()}__S3__"
    store = S3FileSystem(
        endpoint_override=os.environ[f"{prefix}ENDPOINT"],
        region=os.environ[f"{prefix}REGION"],
        access_key=os.environ[f"{prefix}ACCESS_KEY_ID"],
        secret_key=os.environ[f"{prefix}SECRET_ACCESS_KEY"],
        allow_bucket_creation=True,
    )
    store.create_dir(name, recursive=False)
    print(f"bucket {name} is there")


if __name__ == "__main__":
    create_bucket(sys.argv[1])
