"""Sample the table, and train centroids and codes."""

from puffin_ann.lifecycle.runs.spark_app import main

if __name__ == "__main__":
    main("train")
