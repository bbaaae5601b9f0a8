"""Vector indexes that live inside Apache Iceberg tables as Puffin files."""

__version__ = "0.1.0"
