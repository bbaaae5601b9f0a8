"""Keep from the terminal what Spark says while it starts, unless it fails to, and of interrupts."""

import logging
import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STDERR = 2


def is_told(record: logging.LogRecord) -> bool:
    """Tell whether a record is for the terminal: all but what an interrupt broke off.

    Py4J logs the call to Spark that was waited for, with two tracebacks.
    """
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return False
        error = error.__cause__ or error.__context__
    return True


@contextmanager
def held_back() -> Iterator[None]:
    """Hold back what child processes started in the body write to the standard error stream.

    No setting does it: a JVM warns of its own modules, and Spark of the host's name and its log
    level, before it has read its configuration. What they write once the body has ended is passed
    on as it comes; if the body raises, what was held back, too. Of a start that is interrupted
    nothing is told, whatever comes of it.
    """
    sys.stderr.flush()
    terminal = os.dup(STDERR)
    source, sink = os.pipe()
    os.dup2(sink, STDERR)
    os.close(sink)
    held: list[bytes] | None = []
    is_interrupted = False
    guard = threading.Lock()

    def take() -> bool:
        """Hold back or pass on what there is; False once the last writer has ended."""
        while select.select([source], [], [], 0)[0]:
            data = os.read(source, 1 << 16)
            if not data:
                return False
            if held is not None:
                held.append(data)
            else:
                os.write(terminal, data)
        return True

    def pass_on() -> None:
        is_open = True
        while is_open:
            select.select([source], [], [])
            with guard:
                is_open = take()
        os.close(source)
        os.close(terminal)

    # Until the last process that inherited the stream ends, which is not waited for.
    threading.Thread(target=pass_on, name="puffin-ann-stderr", daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        is_interrupted = True
        raise
    except BaseException:
        with guard:
            take()
            os.write(terminal, b"".join(held or ()))
        raise
    finally:
        sys.stderr.flush()
        with guard:
            take()
            held = [] if is_interrupted else None
            os.dup2(terminal, STDERR)
