"""Measure the recall of the unpublished index; fail if it is too low."""

from puffin_ann.lifecycle.runs.spark_app import main

if __name__ == "__main__":
    main("gate")
