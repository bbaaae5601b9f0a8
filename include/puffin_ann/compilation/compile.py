"""Compile every kernel for the processors that are asked for, in processes beside each other."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, groupby
from pathlib import Path

from puffin_ann.compilation import exercises
from puffin_ann.compilation.worker import Overload
from puffin_ann.errors import BadInputError, CacheUnusableError, CompilationError
from puffin_ann.kernel_cache import kernel_folders
from puffin_ann.kernel_cache.kernel_files import SUFFIX
from puffin_ann.kernel_cache.simd_levels import LEVELS, SimdLevel, common_processor
from puffin_ann.settings import kernels_leaf, settings, simd_level

NATIVE = "native"
"""The target that is this machine's processor; the others are all processors of a level."""

COMPLETE = "complete.json"
"""In the folder of a processor when all its kernels are there: how many, and their checksums."""

LINES_TOLD = 15
"""Last lines of a process that failed."""

PARTS = 8
"""Of the work for a level: more than there are cores on most machines, so that all have some."""

Progress = Callable[[str], AbstractContextManager[None]]
"""Told the name of a step, which lasts as long as the context."""


@dataclass(frozen=True)
class Compiled:
    """The kernels for a target.

    Attributes:
        target: that was asked for.
        level: of vector instructions.
        processor: as LLVM names it.
        kernels: how many there are.
        seconds: that it took; 0 where they were there.
    """

    target: str
    level: SimdLevel
    processor: str
    kernels: int
    seconds: float


@dataclass(frozen=True)
class _Goal:
    """A target, the processor that it means, and the folder that its kernels belong into."""

    target: str
    level: SimdLevel
    processor: tuple[str, str, str]
    folder: Path

    @property
    def surroundings(self) -> dict[str, str]:
        """The variables by which Numba compiles for that processor."""
        if self.target == NATIVE:
            return {}
        _, name, features = self.processor
        return {
            "NUMBA_CPU_NAME": name,
            "NUMBA_CPU_FEATURES": features,
            "PUFFIN_ANN_SIMD": "auto",
        }


def compile_kernels(
    targets: Sequence[str], folder: Path | None = None, *, progress: Progress | None = None
) -> list[Compiled]:
    """Compile what is not there yet of the kernels for some processors.

    Types of arguments are found by use, on this machine's processor, whose kernels are compiled for
    it if they are not there. For other levels, also for better ones than this machine has, kernels
    are then compiled without being run.

    Args:
        targets: `native`, or levels.
        folder: where to put them; default: `settings.kernels_dir`, where processes look.
        progress: told what is done.

    Returns:
        What was made or found, in order.

    Raises:
        BadInputError: there is no such target on this kind of machine.
        CacheUnusableError: the folder cannot be written to, or others could exchange what is in it.
        CompilationError: a process that compiled failed; has its last words.
    """
    step = progress or (lambda _: nullcontext())
    base = (folder or settings().kernels_dir).absolute()
    # This machine's first: what is found by it is what others are compiled for.
    goals = sorted(
        (_goal(target, base) for target in dict.fromkeys(targets)),
        key=lambda goal: goal.target != NATIVE,
    )
    found: list[Overload] = []
    done = []
    for goal in goals:
        kernels, began = _complete(goal), time.monotonic()
        if kernels is not None:
            done.append(Compiled(goal.target, goal.level, goal.processor[1], kernels, 0.0))
            continue
        _make(goal.folder)
        name = goal.processor[1]
        if goal.target == NATIVE:
            with step(f"compile for {name}"):
                found = _find_types(base)
        else:
            with step("find what to compile"):
                found = found or _find_types(None)
            with step(f"compile for {name}"):
                _compile_types(found, goal, base)
        kernels = _completed(goal, len(found))
        done.append(Compiled(goal.target, goal.level, name, kernels, time.monotonic() - began))
    return done


def _goal(target: str, base: Path) -> _Goal:
    from numba.core.registry import cpu_target

    if target not in (NATIVE, *LEVELS):
        raise BadInputError(
            f"kernels cannot be compiled for {target!r}; take {NATIVE}, {', '.join(LEVELS)}"
        )
    native: tuple[str, str, str] = cpu_target.target_context.codegen().magic_tuple()
    level, processor = simd_level(), native
    if target != NATIVE:
        level = next(level for level in LEVELS if level == target)
        common = common_processor(level)
        if common is None:
            raise BadInputError(f"{target} is not a level of this kind of processor: take native")
        processor = (native[0], common.name, common.flags)
    leaf = kernel_folders.processor_folder(processor, level)
    return _Goal(target, level, processor, base / kernels_leaf() / leaf)


def _complete(goal: _Goal) -> int | None:
    """Return how many kernels there are for a goal; None if not all are there, and whole.

    Those that are not whole are removed.
    """
    try:
        told = json.loads((goal.folder / COMPLETE).read_bytes())
        is_of_these = told["exercises"] == _digest_of_exercises()
        files = {str(name): int(checksum) for name, checksum in told["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    broken = [name for name, checksum in files.items() if _checksum(goal.folder, name) != checksum]
    for name in broken:
        with suppress(OSError):  # then it cannot be made there, either, which is told
            (goal.folder / name).unlink()
    return _count(goal.folder) if is_of_these and not broken else None


def _checksum(folder: Path, name: str) -> int | None:
    """Return the checksum of a file; None if it cannot be read."""
    try:
        return zlib.crc32((folder / name).read_bytes())
    except OSError:
        return None


def _digest_of_exercises() -> str:
    # Without hnswlib those of HNSW compile nothing; once it is installed, they have to.
    with_hnsw = bytes([find_spec("hnswlib") is not None])
    return hashlib.sha256(Path(exercises.__file__).read_bytes() + with_hnsw).hexdigest()


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.glob(f"*{SUFFIX}"))


def _completed(goal: _Goal, expected: int) -> int:
    """Check that all kernels are there, let all users read them, and note that they are complete.

    Raises:
        CacheUnusableError: some are missing.
    """
    there = _count(goal.folder)
    if there < expected:
        raise CacheUnusableError(
            f"only {there} of {expected} compiled kernels could be kept in {goal.folder}; see that "
            "there is room, and that nobody removes them"
        )
    (goal.folder / COMPLETE).unlink(missing_ok=True)
    files = sorted(file for file in goal.folder.iterdir() if file.is_file())
    for file in files:
        file.chmod(0o644)
    told = {
        "kernels": there,
        "files": {file.name: _checksum(goal.folder, file.name) for file in files},
        "level": goal.level,
        "processor": goal.processor,
        "exercises": _digest_of_exercises(),
    }
    (goal.folder / COMPLETE).write_text(json.dumps(told, indent=2) + "\n")
    return there


def _make(folder: Path) -> None:
    """Make a folder that all users may read, where only those can write who could to our code."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        kernel_folders.require_as_safe_as_code(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CacheUnusableError(
            f"compiled kernels cannot be put into {folder}: {error.strerror or error}; choose "
            "another folder by --to DIR, and set PUFFIN_ANN_KERNELS_DIR to it wherever they are to "
            "be used"
        ) from error


def _find_types(base: Path | None) -> list[Overload]:
    """Do the exercises; kernels that are not there are compiled for this machine's processor.

    Args:
        base: where to keep those, as of `compile_kernels`; None: where any process does.
    """
    surroundings = {} if base is None else _kept_in(base)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, str(number)) for number, _ in enumerate(exercises.EXERCISES)]
        commands = [
            ["exercise", name, str(file)]
            for name, file in zip(exercises.EXERCISES, files, strict=True)
        ]
        _run_each(commands, surroundings)
        overloads = [overload for file in files for overload in _read(file)]
    return list(dict.fromkeys(overloads))


def _compile_types(found: Sequence[Overload], goal: _Goal, base: Path) -> None:
    by_module = [
        list(overloads) for _, overloads in groupby(sorted(found, key=_module), key=_module)
    ]
    parts = [list(chain.from_iterable(by_module[start::PARTS])) for start in range(PARTS)]
    with tempfile.TemporaryDirectory() as folder:
        commands = []
        for number, part in enumerate(parts):
            file = Path(folder, str(number))
            file.write_bytes(pickle.dumps(part))
            commands.append(["types", str(file)])
        _run_each(commands, {**goal.surroundings, **_kept_in(base)})


def _module(overload: Overload) -> str:
    return overload[0]


def _read(file: Path) -> list[Overload]:
    found: list[Overload] = pickle.loads(file.read_bytes())  # noqa: S301 - of our own worker
    return found


def _kept_in(base: Path) -> dict[str, str]:
    """Return the variables by which a process keeps kernels in a folder that `_make` checked."""
    return {
        "NUMBA_CACHE_DIR": str(base),
        "PUFFIN_ANN_KERNELS_DIR": str(base),
        "PUFFIN_ANN_CACHE_TRUSTED": "true",
    }


def _run_each(commands: Iterable[Sequence[str]], surroundings: Mapping[str, str]) -> None:
    with ThreadPoolExecutor(settings().thread_count) as pool:
        for _ in pool.map(lambda command: _run(command, surroundings), commands):
            pass


def _run(command: Sequence[str], surroundings: Mapping[str, str]) -> None:
    """Run a worker on one core.

    Raises:
        CompilationError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "puffin_ann.compilation.worker", *command],
        env={**os.environ, "PUFFIN_ANN_THREADS": "1", **surroundings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-LINES_TOLD:])
        raise CompilationError(
            f"kernels were not compiled: {' '.join(command)} ended with code {done.returncode}:\n"
            f"{last}"
        )
