"""What the fuzzers share: their seeds, their limits, and the inputs that were found before.

A fuzzer is a file `tests/fuzz/fuzz_<part>.py`, which `make fuzz` and the tests find by its name. It
imports what it tests under `atheris.instrument_imports` and calls `fuzz` with a function that
raises nothing for any input. An input that broke something is pinned as a file in
`tests/fuzz/finds/<part>`: every run begins with those, the short one of `make test` included.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris

from tests.support.paths import FUZZ

FINDS = FUZZ / "finds"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

LIMITS = ("-max_len=100000", "-rss_limit_mb=1500", "-timeout=10", "-print_final_stats=1")

Mutator = Callable[[bytes, int, int], bytes]
"""Changes an input: given it, the most bytes it may have, and a seed."""


def fuzz(
    test: Callable[[bytes], None], seeds: Iterable[bytes], mutate: Mutator | None = None
) -> None:
    """Give inputs to a test until libFuzzer's own options, from the command line, say enough.

    Args:
        test: takes an input; whatever it raises is a find.
        seeds: inputs to begin with, beside those pinned for this part.
        mutate: in place of libFuzzer's own way to change inputs.
    """
    part = Path(sys.argv[0]).stem.removeprefix("fuzz_")
    with tempfile.TemporaryDirectory() as folder:
        pinned = sorted((FINDS / part).glob("*"))
        for number, seed in enumerate([*seeds, *(path.read_bytes() for path in pinned)]):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        # The last folder is only read; what is found goes to the first, if one is given.
        arguments = [sys.argv[0], *LIMITS, *sys.argv[1:], folder]
        options = {} if mutate is None else {"custom_mutator": mutate}
        atheris.Setup(arguments, atheris.instrument_func(test), **options)
        atheris.Fuzz()
