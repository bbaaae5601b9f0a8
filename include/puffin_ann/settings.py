"""All settings that are not part of an index declaration, read once from the environment."""

import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from puffin_ann import private_folders
from puffin_ann.errors import BadInputError, CacheUnusableError, UnsafeFolderError
from puffin_ann.kernel_cache.simd_levels import SimdLevel, best_level
from puffin_ann.version import __version__
from puffin_ann.wording import refusal_in_words

log = logging.getLogger("puffin_ann")

MIB = 1 << 20


def _default_cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "puffin-ann"


def _default_kernels_dir() -> Path:
    return Path(sys.prefix) / "share" / "puffin-ann" / "kernels"


def _default_declarations_dir() -> tuple[Path, ...]:
    """Return `include/indexes` of a checkout; none where the library is installed.

    What is beside an installed package belongs to the environment, not to its user.
    """
    include = Path(__file__).resolve().parents[1]
    return (include / "indexes",) if include.name == "include" else ()


_most_threads: int | None = None


CacheMode = Literal["full", "lazy", "none"]
StalePolicy = Literal["scan", "warn", "fail"]
"""When shards are brought to local disk: before they answer, once they are asked often, never."""


PREFIX = "PUFFIN_ANN_"


class Settings(BaseModel):
    """Settings of a process; each is read from `PUFFIN_ANN_<NAME>`.

    Read here and not by pydantic-settings, which takes some 30 ms to import.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    declarations_dir: tuple[Path, ...] = Field(
        default_factory=_default_declarations_dir,
        description="Folders of index declarations (*.yaml), with colons between them as in PATH; "
        "see `declarations_folders`.",
    )
    cache_dir: Path = Field(
        default_factory=_default_cache_dir,
        description="Folder for shards in memory-mapped form and for compiled kernels.",
    )
    kernels_dir: Path = Field(
        default_factory=_default_kernels_dir,
        description="Folder of kernels that `puffin-ann compile` made; only read otherwise.",
    )
    cache_trusted: bool = Field(
        default=False,
        description="Use the cache folder whoever else may write to it: for a machine or container "
        "that has no other users.",
    )
    cache_max_bytes: int = Field(
        default=64 * 1024 * MIB,
        gt=0,
        description="Shards used longest ago leave the cache beyond this size.",
    )
    cache_mode: CacheMode = Field(
        default="lazy",
        description="When searches bring a shard to local disk: `full`, before it answers; `lazy`, "
        "in the background, once a tenth of its bytes was read by ranges to answer from its "
        "nearest cells; `none`, never.",
    )
    ranges_min_bytes: int = Field(
        default=8 * MIB,
        ge=0,
        description="A shard of fewer bytes is always brought before it answers: ranges of it "
        "would take as long.",
    )
    columns_max_bytes: int = Field(
        default=256 * MIB,
        ge=0,
        description="Footers and columns of data files that a process keeps in memory, for the "
        "next rows that a search fetches columns of.",
    )
    lookups_max_bytes: int = Field(
        default=256 * MIB,
        ge=0,
        description="Lookups from values to rows that a process keeps in memory, of columns that "
        "indexes include and conditions ask; 0: every row is asked each time.",
    )
    codes_max_bytes: int = Field(
        default=1024 * MIB,
        ge=0,
        description="Codes, a byte a number or less, that a process keeps in memory of rows that "
        "many queries are compared with; 0: rows are compared as they are stored.",
    )
    records_max_bytes: int = Field(
        default=4096 * MIB,
        ge=0,
        description="Largest records of a `vamana` shard, made in the cache so that searches are "
        "faster: 1 to 6 times its vectors. Shards that need more are searched without.",
    )
    sample_bytes: int = Field(
        default=512 * MIB,
        gt=0,
        description="Upper bound of the vectors read to train centroids.",
    )
    assign_task_bytes: int = Field(
        default=256 * MIB,
        gt=0,
        description="Vector bytes that one Spark task of the assign stage holds in memory.",
    )
    whole_file_bytes: int = Field(
        default=MIB,
        ge=0,
        description="An index of no more bytes is published as one file each time. Of a larger one "
        "a new file has what changed, and names the files that have the rest.",
    )
    row_lineage: bool = Field(
        default=True,
        description="In tables of version 3, refreshes know rows that a compaction rewrote into "
        "other files by their row ids, and do not read their vectors; false: they hash every one.",
    )
    catalog_seconds: float = Field(
        default=30.0,
        gt=0,
        le=86_400.0,
        description="A catalog that has not given a table for so long counts as unreachable.",
    )
    store_seconds: float = Field(
        default=30.0,
        ge=0,
        le=86_400.0,
        description="A store that fails, or gives no answer, is asked again for so long before it "
        "counts as unreachable; 0: it is asked only once.",
    )
    lease_seconds: float = Field(
        default=120.0,
        gt=0,
        description="A stage of a run that sends no heartbeat for so long is presumed dead, "
        "and another run may work on its index.",
    )
    lease_idle_seconds: float = Field(
        default=900.0,
        gt=0,
        description="So long a run may wait between two stages, for a place in Airflow or Spark.",
    )
    threads: int = Field(
        default=0,
        ge=0,
        description="Threads of a search or build in this process; 0 means every core.",
    )
    spark_conf_allowed: tuple[str, ...] = Field(
        default=("*",),
        description="Settings of Spark that declarations may make: names or patterns such as "
        "spark.executor.*, with commas between them.",
    )
    submit_allowed: tuple[str, ...] = Field(
        default=("*",),
        description="What declarations may have stages submitted by: names such as spark_submit "
        "and livy, or patterns, with commas between them.",
    )
    simd: Literal["auto", "vbmi", "avx2", "portable"] = Field(
        default="auto",
        description="Vector instructions that kernels use; auto: the best this machine has.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add what the environment says of whatever is not given; case is of no account.

        An empty one names no folder: it is as if it were not set.
        """
        found = {
            name.upper().removeprefix(PREFIX).lower(): value
            for name, value in os.environ.items()
            if name.upper().startswith(PREFIX)
        }
        for name, field in cls.model_fields.items():
            if field.annotation is Path and found.get(name) == "":
                del found[name]
        return {name: found[name] for name in cls.model_fields.keys() & found.keys()} | given

    @field_validator("spark_conf_allowed", "submit_allowed", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return value.replace(",", " ").split() if isinstance(value, str) else value

    @field_validator("declarations_dir", mode="before")
    @classmethod
    def _separated(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return [part for part in value.split(os.pathsep) if part]

    @property
    def thread_count(self) -> int:
        """Threads to use: `threads`, or the cores this process may run on, within limits."""
        wanted = self.threads or len(os.sched_getaffinity(0))
        return wanted if _most_threads is None else min(wanted, _most_threads)


@contextmanager
def limit_threads(most: int) -> Iterator[None]:
    """Let this process use so many threads at most, such as Spark gave its task."""
    global _most_threads
    before, _most_threads = _most_threads, most
    try:
        yield
    finally:
        _most_threads = before


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Return the settings of this process, read and validated at the first call.

    Raises:
        BadInputError: a variable's value is not allowed.
    """
    try:
        return Settings()
    except ValidationError as error:
        found = error.errors()[0]
        name, told = f"{PREFIX}{found['loc'][0]}".upper(), refusal_in_words(found)
        raise BadInputError(f"{name}={found['input']!r} is not allowed: {told}") from None


def configure_numba() -> None:
    """Say where compiled kernels are, before any of them is imported.

    They are taken from `kernels_dir` where `puffin-ann compile` put them; what is not there is
    compiled, and kept in the cache folder, or in `NUMBA_CACHE_DIR` where that is set. Where there
    is no place that other users cannot write to, each process compiles for itself.

    Raises:
        BadInputError: Numba was told to compile nothing.
    """
    from puffin_ann.kernel_cache.numba_cache import install  # imports Numba

    install(
        made=settings().kernels_dir / kernels_leaf(),
        kept=_own_kernels_folder(),
        trusted=settings().cache_trusted,
        level=simd_level(),
    )


def kernels_leaf() -> str:
    """Return the name of the folder in which kernels of these sources are kept.

    Numba does not notice an edit in a module that a kernel imports, so that the name has a digest
    of all kernels' sources.
    """
    return f"kernels-{__version__}-{_kernel_digest()}"


def _own_kernels_folder() -> Path | None:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    try:
        if not chosen:
            return cache_folder(kernels_leaf())
        return _kept_folder(Path(chosen), kernels_leaf(), trusted=settings().cache_trusted)
    except (CacheUnusableError, UnsafeFolderError, OSError) as error:
        _tell_once(
            "kernels that have to be compiled are compiled again by each process, which takes "
            f"minutes: {error}; set NUMBA_CACHE_DIR, or PUFFIN_ANN_CACHE_DIR, to a folder of your "
            "own"
        )
        return None


def simd_level() -> SimdLevel:
    """Return the level of vector instructions that kernels of this process are written for.

    `NUMBA_CPU_FEATURES`, which has Numba compile for another machine, is honoured.
    """
    level = settings().simd
    return best_level(cpu_features()) if level == "auto" else level


def cpu_features() -> set[str]:
    """Return the features of the processor that kernels are compiled for, as LLVM names them."""
    told = os.environ.get("NUMBA_CPU_FEATURES")
    if told is not None:
        return {name[1:] for name in told.split(",") if name.startswith("+")}
    import llvmlite.binding as llvm

    return {name for name, there in llvm.get_host_cpu_features().items() if there}


def cache_folder(leaf: str) -> Path:
    """Return a folder of the cache that this user alone can write to, made if it is not there.

    Where the cache folder is read-only (Spark workers, containers), or not safe from other users, a
    temporary one is used. In a cache folder that is open to all users, as `/tmp` is, each user has
    a folder of his own.

    Raises:
        CacheUnusableError: not even a temporary one can be had.
    """
    problems = []
    for base, trusted in ((settings().cache_dir, settings().cache_trusted), (_temporary(), False)):
        if base is None:
            continue
        try:
            folder = _kept_folder(base, leaf, trusted=trusted)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except (OSError, UnsafeFolderError) as error:
            problems.append(f"{base} is not used: {error}")
            if isinstance(error, UnsafeFolderError):
                _tell(problems[-1], is_chosen=base == settings().cache_dir)
    raise CacheUnusableError(
        "; ".join(problems or ["there is no folder to write to"])
        + "; set PUFFIN_ANN_CACHE_DIR to a folder of your own"
    )


def renew_folder(folder: Path) -> None:
    """Make a folder that `cache_folder` gave again where it was removed since.

    Raises:
        UnsafeFolderError: other users can write to it now.
        OSError: it cannot be made.
    """
    if settings().cache_trusted and folder.is_relative_to(settings().cache_dir):
        _trusted(folder)
    else:
        private_folders.make(folder)


def _kept_folder(base: Path, leaf: str, *, trusted: bool) -> Path:
    if trusted:
        return _trusted(base / leaf)
    return private_folders.make(private_folders.make_in(base) / leaf)


def _trusted(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@lru_cache(maxsize=1)
def _tell_once(problem: str) -> None:
    log.error("%s", problem)  # until it is mended, whatever is begun again waits for compilation


@lru_cache(maxsize=64)
def _tell(problem: str, *, is_chosen: bool) -> None:
    """Tell once of a folder that is not safe."""
    otherwise = ", or PUFFIN_ANN_CACHE_TRUSTED=true where all who can write there may be trusted"
    log.error(
        "%s; set PUFFIN_ANN_CACHE_DIR to a folder of your own%s",
        problem,
        otherwise if is_chosen else "",
    )


def _temporary() -> Path | None:
    try:
        return Path(tempfile.gettempdir()) / f"puffin-ann-{os.geteuid()}"
    except OSError:
        return None  # everything is read-only


@lru_cache(maxsize=1)
def _kernel_digest() -> str:
    package = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    kernels = [*package.glob("ann/**/*.py"), *package.glob("blobs/**/*.py")]
    for source in sorted([*kernels, package / "numba_kernels.py"]):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
