"""The DAGs of every declared index, which Airflow finds here: ann_build_<index> and its siblings.

To leave a kind out, name the others: `index_dags(["build", "refresh", "maintain"])`.
"""

from puffin_ann.airflow import index_dags

globals().update(index_dags())
