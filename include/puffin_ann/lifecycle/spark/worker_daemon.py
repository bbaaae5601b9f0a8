"""The process that Spark forks its Python workers from, with the library imported beforehand.

Spark starts `python -m <spark.python.daemon.module> pyspark.worker` once per executor, and each
worker is a fork of it. Of Spark's own daemon, every worker would import PyIceberg, PyArrow and
Numba by itself, at the same time as the others on its machine: one to two seconds of a core each,
in the first task it gets. Here that is done once, and the workers share the memory.
"""

from puffin_ann.lifecycle.spark.daemon_prestart import handed_over
from puffin_ann.lifecycle.spark.import_path import prefer_folders
from puffin_ann.lifecycle.spark.worker_imports import prepare, serve


def main() -> None:
    """Import what tasks need, then serve as Spark's own daemon does; or have it done."""
    prefer_folders()
    if not handed_over():
        prepare()
        serve()


if __name__ == "__main__":
    main()
