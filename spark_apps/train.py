"""Stage 0: sample the table and train the centroids."""

from puffin_ann.lifecycle.runs.spark_app import main

if __name__ == "__main__":
    main("train")
