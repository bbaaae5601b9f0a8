"""What the entry points under `spark_apps/` share: arguments, session, log, exit code."""

import argparse
import logging
import sys

from puffin_ann.errors import PuffinAnnError


def main(stage: str) -> None:
    """Run one stage in a Spark application; leaves with the error's exit code if it fails."""
    parser = argparse.ArgumentParser(description=f"Run the stage {stage!r} of a build run.")
    parser.add_argument("--table", required=True, help="catalog.namespace.table")
    parser.add_argument("--plan", required=True, help="location of the staged plan")
    if stage == "build_group":
        parser.add_argument("--group", required=True, help="id of the shard group")
    arguments = parser.parse_args()
    group = [arguments.group] if stage == "build_group" else []
    logging.basicConfig(
        level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stdout
    )
    logging.getLogger("puffin_ann").setLevel(logging.INFO)

    from pyspark.sql import SparkSession

    from puffin_ann.lifecycle import stages
    from puffin_ann.lifecycle.runners import OnSpark

    spark = SparkSession.builder.getOrCreate()
    try:
        getattr(stages, stage)(OnSpark(spark), arguments.table, arguments.plan, *group)
    except PuffinAnnError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    finally:
        spark.stop()
