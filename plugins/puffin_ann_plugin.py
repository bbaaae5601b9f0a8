"""The page *Vector indexes* of Airflow's user interface: Airflow takes plugins from this folder."""

from puffin_ann.airflow.page.plugin import PuffinAnnPlugin

__all__ = ["PuffinAnnPlugin"]
