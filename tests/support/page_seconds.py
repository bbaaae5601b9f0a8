"""What a load of the page of all indexes takes who looks at it: elapsed time, over HTTP.

Run as a program: `PYTHONPATH=include/local python -m tests.support.page_seconds`. It starts an API
server of Airflow that knows 200 indexes, of which every fourth has a silent catalog, and loads the
page as a browser that is logged in does.
"""

import statistics
import tempfile
import time
from pathlib import Path

from tests.support.cockpit import Cockpit

INDEXES, WARMING, LOADS = 200, 3, 20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Cockpit(Path(folder) / "local")
        try:
            server.start(INDEXES)
            token = server.token("admin")
            took = []
            for _ in range(WARMING + LOADS):
                began = time.perf_counter()
                status, text, _ = server.get("/puffin-ann/", token)
                took.append(1000 * (time.perf_counter() - began))
                assert (status, text.count("<tr data-state=")) == (200, INDEXES)
        finally:
            server.stop()
    loads = took[WARMING:]
    print(
        f"{INDEXES} indexes, {LOADS} loads after {WARMING} others: "
        f"median {statistics.median(loads):.0f} ms, longest {max(loads):.0f} ms"
    )


if __name__ == "__main__":
    main()
