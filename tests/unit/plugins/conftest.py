"""An Airflow home of the test session, for the part of Airflow that loads plugins."""

import os
import sys
import tempfile
from pathlib import Path

# Airflow reads its home when it is imported, which is before any fixture runs; another folder of
# tests may have set one already.
if "AIRFLOW_HOME" not in os.environ:
    _home = tempfile.TemporaryDirectory(prefix="puffin-ann-airflow-")
    os.environ["AIRFLOW_HOME"] = _home.name

# As Airflow does with the folder of plugins.
sys.path.append(str(Path(__file__).resolve().parents[3] / "plugins"))
