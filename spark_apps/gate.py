"""Measure the recall of the staged index."""

from puffin_ann.lifecycle.runs.spark_app import main

if __name__ == "__main__":
    main("gate")
