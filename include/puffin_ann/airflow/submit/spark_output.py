"""What `spark-submit` prints: lines of ours into the task's log, all of it into a file.

Spark and the JVM say much that nobody wants to read until something fails. So the task's log names
the file, and where the application fails it has the last of those lines.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from airflow.sdk import Context

from puffin_ann.application_lines import failure_in, record_in
from puffin_ann.redaction import REDACTION, redact

log = logging.getLogger("airflow.task")

FOLDER = "spark"
"""Of the files, in Airflow's folder of logs: what deletes old logs deletes them, too."""

LAST_LINES = 40
"""Lines that are not ours which the task's log has where the application fails."""

_NOT_IN_NAMES = re.compile(r"[^\w.=+-]")


class SparkOutput:
    """What one application prints.

    Args:
        file: returns where it goes.

    Attributes:
        error: what the application said of its failure; empty where it said nothing.
    """

    def __init__(self, file: Callable[[], Path]) -> None:
        self.error = ""
        self._file = file
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def take(
        self, hook: Any, process: Callable[[Iterator[str]], None], lines: Iterable[str]
    ) -> None:
        """Have a hook process lines, and log them in the file instead of the task's log.

        Args:
            hook: of Airflow, which logs each line.
            process: what it does with lines.
            lines: of the application.
        """
        before = hook._log
        with self._opened() as logger:
            hook._log = logger
            try:
                process(self._sorted(lines))
            finally:
                hook._log = before

    def tell_last(self) -> None:
        """Log the last lines that are not ours: the application failed."""
        if self._last:
            log.info("the last lines of Spark were:\n%s", "\n".join(self._last))

    def _sorted(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            record, failure = record_in(line), failure_in(line)
            if record is not None:
                log.log(record[0], "%s", record[1])
            elif failure:
                self.error = failure
            else:
                self._last.append(redact(line.rstrip()))
            yield line

    @contextmanager
    def _opened(self) -> Iterator[logging.Logger]:
        """Give a logger that writes the file; where that cannot be, one for the task's log."""
        file = self._file()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            handler = logging.FileHandler(file, encoding="utf-8")
        except OSError as error:
            log.warning("what Spark prints is told here, since no file can be written: %s", error)
            logger = log.getChild(FOLDER)
            logger.addFilter(REDACTION)
            yield logger
            return
        log.info("what Spark prints is in %s", file)
        handler.setFormatter(logging.Formatter("%(message)s"))
        handler.addFilter(REDACTION)
        logger = logging.Logger("spark", logging.INFO)
        logger.addHandler(handler)
        try:
            yield logger
        finally:
            handler.close()


def file_of(context: Context) -> Path:
    """Return the file of an attempt at a task."""
    conf = import_module("airflow.configuration").conf
    folder = conf.get("logging", "base_log_folder", fallback="") or gettempdir()
    ti = context["ti"]
    parts = [f"dag_id={ti.dag_id}", f"run_id={ti.run_id}", f"task_id={ti.task_id}"]
    if ti.map_index is not None and ti.map_index >= 0:
        parts.append(f"map_index={ti.map_index}")
    names = [_NOT_IN_NAMES.sub("_", part) for part in parts]
    return Path(folder, FOLDER, *names, f"attempt={ti.try_number}.log")
