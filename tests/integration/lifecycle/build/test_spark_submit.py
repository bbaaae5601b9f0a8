"""An application under spark-submit: its configuration is honoured, its workers are ready early."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

APPLICATION = """
import os
from pathlib import Path
from puffin_ann.lifecycle.spark.import_path import prefer_folders

prefer_folders()
from puffin_ann.lifecycle.runtime.progress import metering
from puffin_ann.lifecycle.spark.runner import OnSpark
from puffin_ann.lifecycle.runs.spark_app import _session
from puffin_ann.lifecycle.spark.session import stop, warm_up


def told(_):
    parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().split(chr(0))
    gateway = [name for name in os.environ if "GATEWAY" in name]
    return f"{parent[2]} {os.environ['CHOSEN']} {gateway}"


session = _session(meanwhile="puffin_ann.lifecycle.build.stages", workers=True)
warming = warm_up(session.sparkContext)
with metering("work", 2) as meter:
    found = set(OnSpark(session).run(told, ["a", "b"]))
    meter.look()
print("told", *sorted(found), sorted(meter.done), sep="|")
stop(session, warming)
"""


def test_workers_are_forks_of_the_process_that_was_ahead_of_spark(tmp_path):
    program = tmp_path / "application.py"
    program.write_text(APPLICATION)
    given = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.executorEnv.CHOSEN": "by the user",
    }
    result = subprocess.run(
        [
            str(Path(sys.executable).parent / "spark-submit"),
            *(part for name, value in given.items() for part in ("--conf", f"{name}={value}")),
            str(program),
        ],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "include"),
            "PYSPARK_PYTHON": sys.executable,
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    told = [line for line in result.stdout.splitlines() if line.startswith("told|")]
    assert told == ["told|puffin_ann.lifecycle.spark.daemon_prestart by the user []|[0, 1]"]
