import logging
import socket
from signal import SIGKILL
from subprocess import PIPE, Popen
from types import SimpleNamespace

import pytest
from pyspark.accumulators import AccumulatorTCPServer, UpdateRequestHandler

from puffin_ann.cli import spark_session
from puffin_ann.errors import EnvironmentProblemError, PuffinAnnError
from tests.support.lifecycle import builds


def test_what_an_interrupt_broke_off_is_not_logged(caplog):
    while_shut_down = BrokenPipeError()
    while_shut_down.__context__ = KeyboardInterrupt()
    caplog.handler.addFilter(spark_session.is_for_terminal)
    for error in (KeyboardInterrupt(), ValueError(), while_shut_down, None):
        logging.getLogger("py4j").error("told", exc_info=error)
    caplog.handler.removeFilter(spark_session.is_for_terminal)
    told = [record.exc_info and type(record.exc_info[1]) for record in caplog.records]
    assert told == [ValueError, None]


class Session:
    """As much of a Spark session as is started and stopped."""

    sparkContext = None

    def stop(self):
        pass


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """The folder of the files of what Spark printed, and a Spark that prints and starts."""

    def start(declaration, master, printed):
        printed.write_text("WARNING: Using incubator modules")
        return Session()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(spark_session, "spark_session", start)
    monkeypatch.setattr("puffin_ann.lifecycle.spark.session.warm_up", lambda _: None)
    return tmp_path


def fail(error):
    """Have a session fail once it was started."""
    with spark_session.on_spark(builds.declaration(), "local[1]") as runner:
        runner.started()
        raise error


def test_what_spark_printed_is_removed_where_all_goes_well(printed, capfd):
    with spark_session.on_spark(builds.declaration(), "local[1]") as runner:
        runner.started()
        assert len(list(printed.iterdir())) == 1
    assert list(printed.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_of_a_session_that_is_never_started_there_is_no_file(printed):
    with spark_session.on_spark(builds.declaration(), "local[1]"):
        pass
    assert list(printed.iterdir()) == []


def broken_off() -> ConnectionError:
    """What the call to Spark after an interrupted one raises."""
    error = ConnectionError("Answer from Java side is empty")
    error.__context__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize("error", [PuffinAnnError("refused"), KeyboardInterrupt(), broken_off()])
def test_nothing_is_left_or_told_by_an_error_that_says_all_or_an_interrupt(printed, capfd, error):
    with pytest.raises(type(error)):
        fail(error)
    assert list(printed.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_an_interrupt_ends_a_jvm_that_does_not_end_by_itself(monkeypatch):
    monkeypatch.setattr(spark_session, "END_SECONDS", 0.05)
    with Popen(["sleep", "600"], stdin=PIPE) as stubborn:
        spark_session._end_processes(stubborn, None)
        assert stubborn.returncode == -SIGKILL


def test_an_interrupt_leaves_the_jvm_of_an_earlier_session_alone():
    with Popen(["cat"], stdin=PIPE) as earlier:
        spark_session._end_processes(earlier, earlier)
        assert earlier.poll() is None
        assert not earlier.stdin.closed


def test_where_a_task_breaks_it_is_told_where_the_file_is(printed, capfd):
    with pytest.raises(RuntimeError):
        fail(RuntimeError())
    (file,) = printed.iterdir()
    assert capfd.readouterr().err == f"What Spark printed is in {file}\n"
    assert "incubator" in file.read_text()


def test_no_room_for_the_file_is_told(printed, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(printed / "missing"))
    with (
        spark_session.on_spark(builds.declaration(), "local[1]") as runner,
        pytest.raises(EnvironmentProblemError, match="no file for what Spark prints"),
    ):
        runner.started()


@pytest.mark.parametrize(("sent", "is_told"), [(b"token", False), (b"wrong", True)])
def test_the_end_of_the_jvm_is_not_told_by_the_thread_of_accumulators(capfd, sent, is_told):
    server = AccumulatorTCPServer(("localhost", 0), UpdateRequestHandler, "token")
    spark_session._quieten(SimpleNamespace(_accumulatorServer=server))
    with server, socket.create_connection(server.server_address) as jvm:
        jvm.sendall(sent)
        jvm.shutdown(socket.SHUT_WR)
        server.handle_request()
    assert ("Traceback" in capfd.readouterr().err) == is_told
