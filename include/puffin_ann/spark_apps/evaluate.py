"""Measure the recall of the published index on the table as it is."""

from puffin_ann.lifecycle.runs.spark_app import main

if __name__ == "__main__":
    main("evaluate")
