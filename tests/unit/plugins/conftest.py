"""An Airflow home of the test session, for the part of Airflow that loads plugins."""

import os
import tempfile

# Airflow reads its home when it is imported, which is before any fixture runs; another folder of
# tests may have set one already.
if "AIRFLOW_HOME" not in os.environ:
    _home = tempfile.TemporaryDirectory(prefix="puffin-ann-airflow-")
    os.environ["AIRFLOW_HOME"] = _home.name
