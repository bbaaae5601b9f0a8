"""What `make up` says of an Airflow that runs: who still starts, and which DAGs are paused."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import airflow_api
import psutil
import pytest
import server

HEALTHY = {part: {"status": "healthy"} for part in airflow_api.HEALTH}


@pytest.fixture
def api():
    """An API server; what it answers can be set, by path."""
    answers: dict[str, object] = {
        "/api/v2/monitor/health": dict(HEALTHY),
        "/auth/token": {"access_token": "t"},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = answers.get(self.path.partition("?")[0])
            if found is not None and "dags" in self.path:
                known = self.headers.get("Authorization") == "Bearer t"
                found = found if known and "paused=true" in self.path else None
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}", answers
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.fixture
def stage(tmp_path, api) -> server.Stage:
    """The folder of an Airflow of which this process is a part."""
    made = server.Stage(tmp_path)
    made.home.mkdir()
    this = psutil.Process()
    part = server.Part(name="api-server", pid=os.getpid(), created=this.create_time())
    record = server.Server(address=api[0], boot=0, parts=[part])
    made.record.write_text(record.model_dump_json())
    made.passwords.write_text(json.dumps({"admin": "secret"}))
    return made


def test_a_slow_start_is_not_given_up_and_what_still_starts_is_named(stage, api, monkeypatch):
    api[1]["/api/v2/monitor/health"] = {**HEALTHY, "triggerer": {"status": None}}
    monkeypatch.setattr(server, "START_SECONDS", 0)
    with pytest.raises(SystemExit) as ended:
        server.up(stage, 8080)
    told = str(ended.value)
    assert "still starting is its triggerer" in told
    assert "'make up' again goes on" in told
    assert stage.server() is not None


def test_a_server_that_does_not_answer_yet_is_named(stage, monkeypatch):
    monkeypatch.setattr(server, "START_SECONDS", 0)
    monkeypatch.setattr(airflow_api, "ask", lambda *_: (_ for _ in ()).throw(OSError()))
    with pytest.raises(SystemExit, match="still starting is its api-server"):
        server.up(stage, 8080)


def test_dags_that_are_paused_are_told_since_their_runs_wait(stage, api, capsys):
    api[1]["/api/v2/dags"] = {"dags": [{"dag_id": "ann_build_words"}]}
    server.up(stage, 8080)
    assert "paused:         ann_build_words; its runs wait" in capsys.readouterr().out


def test_where_airflow_does_not_tell_them_it_is_up_all_the_same(stage, api, capsys):
    server.up(stage, 8080)
    printed = capsys.readouterr().out
    assert "Airflow is up:" in printed
    assert "paused" not in printed
