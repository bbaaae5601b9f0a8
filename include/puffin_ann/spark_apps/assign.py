"""Read the table once, and stage its rows by shard."""

from puffin_ann.lifecycle.runs.spark_app import main

if __name__ == "__main__":
    main("assign")
