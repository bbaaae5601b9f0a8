"""Index files with right checksums and wrong sense, searched in every way.

The lies are in `tests/support/falsified/falsified_files.py`.

    make fuzz PART=sense SECONDS=600

Each case tells one of the lies, by an index of one of the algorithms, beside an older version that
is whole. A search must answer as brute force does, turn to the older version and tell the damage,
or raise a typed error. A wrong row, another error, a hang or much memory is a find: it is printed
with the lie's name and seed, which
belong into `tests/integration/search/damage/test_falsified_files.py` then.

Not guided by coverage: each case takes half a second, and a lie reaches its branch at once.
"""

import argparse
import faulthandler
import logging
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
HANGS_AFTER = 120.0
GROWS_BY = 500 << 10
"""KiB of resident memory that no case may add."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-max_total_time", type=float, default=60.0)
    parser.add_argument("-seed", type=int, default=None)
    given, _ = parser.parse_known_args()  # the others are libFuzzer's, for the other parts
    logging.disable(logging.CRITICAL)
    seed = time.time_ns() % 2**32 if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        _use(Path(folder))
        sys.exit(_fuzz(random.Random(seed), time.monotonic() + given.max_total_time))


def _use(folder: Path) -> None:
    """Keep the catalog, tables and cache of this process in a folder."""
    os.environ |= {
        "PYICEBERG_CATALOG__TEST__TYPE": "sql",
        "PYICEBERG_CATALOG__TEST__URI": f"sqlite:///{folder}/catalog.db",
        "PYICEBERG_CATALOG__TEST__WAREHOUSE": f"file://{folder}/warehouse",
        "PUFFIN_ANN_CACHE_DIR": str(folder / "cache"),
    }


def _fuzz(rng: random.Random, until: float) -> int:
    from tests.support.falsified import falsified_files, falsified_index

    liars = []
    seen: Counter[str] = Counter()
    finds = 0
    while time.monotonic() < until or not seen:
        if len(liars) < len(falsified_index.CASES):
            liars.append(_liar(falsified_index, *falsified_index.CASES[len(liars)]))
        name, seed = rng.choice(list(falsified_files.LIES)), rng.randrange(10_000)
        liar = rng.choice(liars)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        try:
            liar.lie(name, seed)
            outcome = liar.outcome()
        except falsified_files.NotApplicable:
            continue
        except Exception as error:  # whatever it is, it is a find
            outcome = f"{type(error).__name__}: {error}"
            finds += 1
            print(f"FIND {liar.algorithm} {name} {seed}: {outcome}", file=sys.stderr)
        finally:
            faulthandler.cancel_dump_traceback_later()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > GROWS_BY:
            finds += 1
            print(f"FIND {liar.algorithm} {name} {seed}: {grown} KiB more", file=sys.stderr)
        seen[outcome.partition(":")[0]] += 1
    print(f"{seen.total()} lies, {finds} finds: {dict(seen)}", file=sys.stderr)
    return 1 if finds else 0


def _liar(falsified_index, algorithm, metric, layered, *include):
    from pyiceberg.catalog import load_catalog

    from tests.support.lifecycle import builds

    catalog = load_catalog("test")
    catalog.create_namespace_if_not_exists("demo")
    table = catalog.create_table(
        f"demo.{algorithm}_{'layered' if layered else 'whole'}{'_'.join(('', *include))}",
        schema=builds.rows([]).schema,
        properties={"write.parquet.row-group-limit": "10"},
    )
    table.append(builds.rows(range(30)))
    table.append(builds.rows(range(30, 60)))
    liar = falsified_index.liar(table, algorithm, metric, *include, layered=layered)
    # What is compiled and imported by the first search is nobody's growth.
    if liar.outcome() != falsified_index.RIGHT:
        raise RuntimeError(f"the truth of {algorithm} is not believed")
    return liar


if __name__ == "__main__":
    main()
