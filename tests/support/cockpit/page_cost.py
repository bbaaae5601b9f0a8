"""What a load of the page of all indexes takes in the API server's process, and whom it asks.

Run as a program in the environment of a server: `python -m tests.support.cockpit.page_cost`, which
prints seconds of processor time, and what was asked that is not Airflow's own database.
"""

import json
import sys
import time

from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import get_user
from fastapi.testclient import TestClient

from puffin_ann.airflow.page.application import application

LOADS = 7
ASKING = ("socket.connect", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen")
"""What Python tells of a process that asks another one, a database, or a host."""


def main() -> None:
    create_auth_manager().init()
    app = application()
    admin = SimpleAuthManagerUser(username="admin", role="admin")
    app.dependency_overrides[get_user] = lambda: admin
    asked: list[str] = []

    def listen(event: str, arguments: tuple) -> None:
        if event in ASKING and "airflow.db" not in str(arguments):
            asked.append(f"{event} {arguments}")

    with TestClient(app) as client:
        client.get("/")
        sys.addaudithook(listen)
        took = []
        for _ in range(LOADS):
            began = time.process_time()
            answer = client.get("/")
            took.append(time.process_time() - began)
            assert answer.status_code == 200
    rows = answer.text.count("<tr data-state=")
    print(json.dumps({"seconds": sorted(took)[LOADS // 2], "rows": rows, "asked": asked}))


if __name__ == "__main__":
    main()
