"""Import what Python workers need while Spark itself starts, where both run on this machine.

The JVM starts the daemon of its Python workers with the first task, which then waits for the
daemon's imports: most of a second. With a local master the process that is to be the daemon is
begun before the session, imports beside the JVM, and waits. The daemon that Spark starts calls it,
hands over its pipes and its environment, and does nothing from then on but wait for its end.

Without it the Spark side of `benchmarks/spark.py` (20,000 rows, local[2], sessions by turns, a busy
machine of two cores) took 13.5 and 11.4 s in place of 11.3 and 8.9 s; the line's bound of 1.3 times
a build in process leaves 0.2 s of the 4.6 s that 100,000 rows take on an idle one.

Whatever is not as it was expected to be, the interpreter, a variable, the import path: the daemon
then imports for itself as it does on a cluster, and the process that was ahead ends.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from puffin_ann.lifecycle.spark.session import DAEMON, DAEMON_MODULE

PLACE = "_PUFFIN_ANN_DAEMON_AHEAD"
"""Variable that tells the daemon which Spark starts where to find the one that is ahead."""

PATIENCE = 120.0
"""Seconds that either of the two waits for the other."""

_PREFIXES = ("SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHON_")
_NAMES = ("MASTER", "PYTHONPATH", "PYTHONUNBUFFERED", "NUMBA_CACHE_DIR", PLACE, "_")
"""Variables that need not be the same: Spark's own, which nothing reads as it is imported; what is
compared by itself or set in any case; and the one that this library sets as it is imported."""

_begun: "list[subprocess.Popen[bytes]]" = []
"""Processes of this driver, to be waited for: no session of Spark tells when its daemon ends."""


@contextmanager
def daemon_ahead(conf: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Have the daemon import while the session is started; gives what to add to its configuration.

    Args:
        conf: of the session, with its master.
    """
    begun = _begin(conf) if conf.get(DAEMON_MODULE) == DAEMON and _is_here(conf) else None
    if begun is None:
        yield {}
        return
    process, place = begun
    try:
        yield {f"spark.executorEnv.{PLACE}": place}
    except BaseException:
        process.terminate()
        process.wait()
        shutil.rmtree(Path(place).parent, ignore_errors=True)
        raise


def end_now() -> None:
    """End the daemons that are ahead, and the workers that they forked, whatever those do."""
    for process in _begun:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_here(conf: Mapping[str, str]) -> bool:
    master = conf.get("spark.master", "")
    return master == "local" or master.startswith("local[")


def _begin(conf: Mapping[str, str]) -> "tuple[subprocess.Popen[bytes], str] | None":
    """Begin the process; None where that cannot be.

    It ends with this one: its standard input is a pipe of which this process has the other end.
    """
    try:
        folder = mkdtemp(prefix="puffin-ann-daemon-")  # nobody else may enter
    except OSError:  # no folder can be made
        return None
    place = str(Path(folder) / "socket")
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place)
            listener.listen(1)
            process = subprocess.Popen(
                [
                    os.environ.get("PYSPARK_PYTHON", "python3"),
                    *("-m", __name__, "pyspark.worker"),  # as PySpark's daemon is started
                    *(str(listener.fileno()), place),
                ],
                env=_environment(conf),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # where it fails, the daemon that Spark starts tells why
                pass_fds=[listener.fileno()],
                process_group=0,  # an interrupt from the terminal is not for it
            )
            _begun[:] = [process, *(earlier for earlier in _begun if earlier.poll() is None)]
    except OSError:  # no such interpreter, or too long a path for a socket
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return process, place


def _environment(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as Spark will make it for its daemon, as far as imports go."""
    prefix = "spark.executorEnv."
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "YES",
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "OMP_NUM_THREADS": conf.get("spark.task.cpus", "1"),
        **{name[len(prefix) :]: conf[name] for name in conf if name.startswith(prefix)},
    }


def handed_over() -> bool:
    """Hand this process, a daemon that Spark started, over to the one that is ahead of it.

    Returns once that one has ended; False at once where there is none, or it is not fit.
    """
    place = os.environ.get(PLACE)
    if place is None:
        return False
    with socket.socket(socket.AF_UNIX) as ahead:
        # Spark ends a daemon by this signal, which waits until it can be passed on.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            daemon = _successor(ahead, place)
            if daemon is None:
                return False
            os.setpgid(0, 0)  # an interrupt from the terminal is not for a daemon
            signal.signal(signal.SIGTERM, lambda *_: _end(daemon))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        ahead.settimeout(None)
        with suppress(OSError):
            ahead.recv(1)
    return True


def _successor(ahead: socket.socket, place: str) -> int | None:
    """Hand over pipes and environment; return who goes on with them, None if nobody does."""
    try:
        ahead.settimeout(PATIENCE)
        ahead.connect(place)
        socket.send_fds(ahead, [b"\0"], [0, 1, 2])
        ahead.sendall(json.dumps([_surroundings(), dict(os.environ)]).encode())
        ahead.shutdown(socket.SHUT_WR)
        number = ahead.recv(64)
    except OSError:
        return None
    return int(number) if number else None


def _end(daemon: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(daemon, signal.SIGTERM)


def _surroundings() -> list[object]:
    """Return all that decides what is imported, and what modules read when they are."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_PREFIXES) and name not in _NAMES
    }
    path = [fromkey for fromkey in dict.fromkeys(sys.path) if os.path.exists(fromkey)]
    return [sys.executable, sys.version, sys.argv[1], os.getcwd(), path, variables]


def be_ahead(prepare: Callable[[], None], serve: Callable[[], None]) -> None:
    """Import, wait to be called by the daemon that Spark starts, and serve in its place.

    Args:
        prepare: imports what workers need.
        serve: what a daemon does then.
    """
    listener, place = socket.socket(fileno=int(sys.argv[2])), Path(sys.argv[3])
    before, expected = dict(os.environ), _surroundings()
    try:
        prepare()
        ready, _, _ = select.select([listener, sys.stdin.fileno()], [], [], PATIENCE)
        if listener not in ready:
            return  # the session, or its start, has ended
        caller, _ = listener.accept()
    finally:
        listener.close()
        shutil.rmtree(place.parent, ignore_errors=True)
    caller.settimeout(PATIENCE)
    _, pipes, _, _ = socket.recv_fds(caller, 1, 3)
    with caller.makefile("rb") as message:
        surroundings, environment = json.load(message)
    if surroundings != expected:
        return
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    for name in before.keys() - environment.keys():
        os.environ.pop(name, None)
    os.environ.update(environment)
    os.register_at_fork(after_in_child=caller.close)  # it closes with the daemon, not with workers
    caller.sendall(str(os.getpid()).encode())
    serve()


if __name__ == "__main__":
    from puffin_ann.lifecycle.spark.import_path import prefer_folders
    from puffin_ann.lifecycle.spark.worker_imports import prepare, serve

    prefer_folders()
    be_ahead(prepare, serve)
