"""What a load of the page of all indexes takes who looks at it, over HTTP, and what its server.

Run as a program, in the root of a checkout: `python -m tests.support.cockpit.page_seconds`. It
starts an API server of Airflow that knows 200 indexes, of which every fourth has a silent catalog,
and loads the page as a browser that is logged in does.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from tests.support.cockpit.cockpit import Cockpit

INDEXES, WARMING, LOADS, LOOKS = 200, 3, 20, 5


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.cockpit.page_seconds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    sys.path.insert(0, str(ROOT / "include" / "local"))  # pytest's settings say so, too
    from tests.support.cockpit.cockpit import Cockpit

    with tempfile.TemporaryDirectory() as folder:
        server = Cockpit(Path(folder) / "local")
        try:
            server.start(INDEXES)
            token = server.token("admin")
            for _ in range(WARMING):
                seconds(server, token)
            before = processor_seconds(server)
            loads = [seconds(server, token) for _ in range(LOADS)]
            busy = (processor_seconds(server) - before) / LOADS
            anew = []
            for _ in range(LOOKS):
                server.seed(INDEXES)
                anew.append(seconds(server, token))
        finally:
            server.stop()
    print(
        f"{INDEXES} indexes, {LOADS} loads after {WARMING} others: "
        f"median {1000 * statistics.median(loads):.0f} ms, longest {1000 * max(loads):.0f} ms; "
        f"{1000 * busy:.0f} ms of processor time each\n"
        f"the first load after all were looked at again, {LOOKS} times: "
        f"median {1000 * statistics.median(anew):.0f} ms, longest {1000 * max(anew):.0f} ms"
    )


def seconds(server: "Cockpit", token: str) -> float:
    """Return what a load of the page took."""
    began = time.perf_counter()
    status, text, _ = server.get("/puffin-ann/", token)
    took = time.perf_counter() - began
    assert (status, text.count("<tr data-state=")) == (200, INDEXES)
    return took


def processor_seconds(server: "Cockpit") -> float:
    """Return what the server and its processes have used of processors."""
    assert server.process is not None
    leader = psutil.Process(server.process.pid)
    times = [process.cpu_times() for process in (leader, *leader.children(recursive=True))]
    return sum(each.user + each.system for each in times)


if __name__ == "__main__":
    main()
