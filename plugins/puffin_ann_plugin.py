"""The page *Vector indexes*, for an Airflow that finds this library on its path.

Where the package is installed, Airflow knows the page by an entry point, and reports a second one.
"""

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="puffin_ann"):
    from puffin_ann.airflow.page.plugin import PuffinAnnPlugin as PuffinAnnPlugin
