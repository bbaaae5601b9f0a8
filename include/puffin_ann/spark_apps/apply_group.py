"""Apply what changed to one group of shards."""

from puffin_ann.lifecycle.runs.spark_app import main

if __name__ == "__main__":
    main("apply_group")
