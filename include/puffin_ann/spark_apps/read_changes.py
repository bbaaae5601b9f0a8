"""Read what changed in the table since the index's base version."""

from puffin_ann.lifecycle.runs.spark_app import main

if __name__ == "__main__":
    main("read_changes")
