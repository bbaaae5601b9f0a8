"""`make up` and `make down`: a full Airflow on loopback, over the same folder as the demo."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
from home import ROOT, environment, write_catalog

HOST = "127.0.0.1"
START_SECONDS = 120
PARTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")


def _paths(local: Path) -> tuple[Path, Path, Path]:
    airflow = local / "airflow"
    return (
        airflow / "server.json",
        airflow / "server.log",
        airflow / "simple_auth_manager_passwords.json.generated",
    )


def _recorded(record: Path) -> psutil.Process | None:
    """Return the running server, if the recorded process is still that one."""
    try:
        found = json.loads(record.read_text())
        process = psutil.Process(found["pid"])
        return process if process.create_time() == found["created"] else None
    except (OSError, ValueError, KeyError, psutil.NoSuchProcess):
        return None


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex((HOST, port)) != 0


def _is_healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/api/v2/monitor/health", timeout=5) as answer:
            health = json.load(answer)
    except (OSError, ValueError, urllib.error.URLError):
        return False
    return all((health.get(part) or {}).get("status") == "healthy" for part in PARTS)


def up(local: Path, port: int) -> None:
    """Start scheduler, triggerer, DAG processor and API server; return when all are healthy."""
    record, log, passwords = _paths(local)
    address = f"http://{HOST}:{port}"
    server = _recorded(record)
    if server is None:
        if not _port_is_free(port):
            sys.exit(f"port {port} is taken; choose another one: make up PORT={port + 1}")
        write_catalog(local)
        log.parent.mkdir(parents=True, exist_ok=True)
        server = _start(local, port, record, log)
    else:
        address = json.loads(record.read_text())["address"]
    deadline = time.monotonic() + START_SECONDS
    while not _is_healthy(address):
        if not server.is_running() or server.status() == psutil.STATUS_ZOMBIE:
            record.unlink(missing_ok=True)
            sys.exit(f"Airflow ended while it started; see {log}")
        if time.monotonic() > deadline:
            sys.exit(f"Airflow is not healthy after {START_SECONDS} s; see {log}, then: make down")
        time.sleep(1)
    login = json.loads(passwords.read_text())
    print(f"Airflow is up:  {address}")
    for user, password in login.items():
        print(f"log in as:      {user}  {password}")
    print("stop it with:   make down")


def _start(local: Path, port: int, record: Path, log: Path) -> psutil.Process:
    address = f"http://{HOST}:{port}"
    variables = {
        **environment(local),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    }
    with log.open("a") as out:
        started = subprocess.Popen(
            ["airflow", "standalone"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            start_new_session=True,
        )
    server = psutil.Process(started.pid)
    record.write_text(
        json.dumps({"pid": server.pid, "created": server.create_time(), "address": address})
    )
    return server


def down(local: Path) -> None:
    """Stop the server and all its children, whatever process groups they made for themselves."""
    record, _, _ = _paths(local)
    server = _recorded(record)
    if server is None:
        record.unlink(missing_ok=True)
        print("Airflow is not running")
        return
    family = [*server.children(recursive=True), server]
    _end(family, psutil.Process.terminate, 20)
    left = _end([one for one in family if one.is_running()], psutil.Process.kill, 10)
    if left:
        sys.exit(f"still running: {', '.join(str(one.pid) for one in left)}")
    record.unlink(missing_ok=True)
    print("Airflow is down")


def _end(family: list[psutil.Process], how: object, seconds: float) -> list[psutil.Process]:
    for one in family:
        try:
            how(one)  # type: ignore[operator]
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(family, timeout=seconds)
    return alive


if __name__ == "__main__":
    stage = Path(os.environ.get("PUFFIN_ANN_LOCAL", ROOT / ".local"))
    if sys.argv[1:] == ["up"]:
        up(stage, int(os.environ.get("PORT", "8080")))
    elif sys.argv[1:] == ["down"]:
        down(stage)
    else:
        sys.exit("usage: server.py up|down")
