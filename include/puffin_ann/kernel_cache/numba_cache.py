"""Keep compiled kernels, and load them: those of this user or of the installation.

A file of the cache is unpickled and its machine code is run. So kernels of this package are loaded
only from folders that no other user can write to, and from files that belong to this user or to
root; any other file counts as if it were not there. What `puffin-ann compile` put beside the
library is believed as far as the library's own code is. Nor is a damaged cache, or a full disk, a
reason not to answer: kernels are compiled, and not kept.

Kernels of each processor have a folder of their own, in which there is one file for each signature
of a kernel, named by what it was compiled from and for. Numba's own cache numbers its files in an
index, which two processes that compile at once overwrite for each other, so that one could load the
other's kernel. Kernels made for all processors of a level, see `simd_levels`, stand in where there
are none for the very processor.

Before Numba looks into its cache it imports and registers everything a kernel might be made of:
linear algebra, random numbers, strings, typed lists. That takes three times as long as loading the
kernels of a search, which are machine code and need none of it; see also `numba_start`. Where a
kernel is not in the cache, Numba's compiler does the same anyway before it begins.
"""

import errno
import hashlib
import io
import logging
import os
import pickle
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import llvmlite
import numba
from numba.core import sigutils
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from puffin_ann import private_folders
from puffin_ann.errors import UnsafeFolderError
from puffin_ann.imports.uncollected import uncollected
from puffin_ann.kernel_cache import numba_start
from puffin_ann.kernel_cache.simd_levels import SimdLevel, common_processor

log = logging.getLogger("puffin_ann.kernels")

SUFFIX = ".kernel"
CHECKSUM_BYTES = 4
"""Of a file, before what it has a checksum of: machine code that is damaged ends the process."""
RUNTIME = "runtime.code"
"""What all kernels that make arrays call, beside them; see `numba_start`."""

_enable_any: Any = Dispatcher.enable_caching
_CacheOfNumba: Any = _Cache
_pickled: Any = dumps


@dataclass(frozen=True)
class Places:
    """Where compiled kernels are.

    Attributes:
        made: the folder of those that came with the installation; only read, need not be there.
        kept: the folder of those that had to be compiled; None if they are not kept.
        trusted: everyone who can write to the latter is trusted.
        level: the level of vector instructions that kernels of this process are written for.
    """

    made: Path
    kept: Path | None
    trusted: bool
    level: SimdLevel


def install(*, made: Path, kept: Path | None, trusted: bool, level: SimdLevel) -> None:
    """Have the kernels that this process defines from now on loaded and kept in these places.

    Args:
        made: see `Places`.
        kept: as above.
        trusted: as above.
        level: as above.
    """
    global _places
    _places = Places(made, kept, trusted, level)
    dispatcher: Any = Dispatcher
    dispatcher.enable_caching = _enable


_places: Places | None = None

kernels: list[Any] = []
"""Every kernel of this package that was defined in this process."""


def _enable(self: Any) -> None:
    """Stands in for `Dispatcher.enable_caching`; kernels of other packages are kept as ever."""
    if _places is None or not self.py_func.__module__.startswith("puffin_ann."):
        _enable_any(self)
        return
    self._cache = KernelCache(self.py_func, _places)
    numba_start.leave_extensions(self)
    kernels.append(self)


class KernelCache(_CacheOfNumba):  # type: ignore[misc]
    """The compiled forms of one kernel.

    Args:
        function: the kernel, as it is written.
        places: where to look, and where to keep.
    """

    def __init__(self, function: Any, places: Places) -> None:
        self._function, self._places = function, places
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        """The folder that they are kept in."""
        return None if self._places.kept is None else str(self._places.kept)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel for some types of arguments, ready to be called; None if not kept."""
        self._start_runtime(target_context)
        if not self._enabled:
            numba_start.have_extensions()
            return None
        codegen = target_context.codegen()
        for folder, is_ours, processor in self._sources(codegen.magic_tuple()):
            key = self._key(sig, processor)
            with uncollected():  # it may import modules that its parts are of
                found = _load(folder / self._file_name(key), key, is_ours)
            if found is not None:
                rebuild: Any = CompileResult._rebuild
                with _telling(folder / self._file_name(key)):
                    return rebuild(target_context, *found)
        _tell_compiling(self._places, codegen.magic_tuple())
        numba_start.have_extensions()
        return None

    def _start_runtime(self, target_context: Any) -> None:
        """Have what counts references to the arrays that a kernel makes, loaded or compiled."""
        if numba_start.has_runtime():
            return
        processor = target_context.codegen().magic_tuple()
        for folder, is_ours, made_for in self._sources(processor):
            found = _load(folder / RUNTIME, _runtime_key(made_for), is_ours)
            if found is not None:
                with _telling(folder / RUNTIME):
                    numba_start.take_runtime(target_context, found)
                    return
        made, kept = numba_start.make_runtime(target_context), self._places.kept
        if made is not None and kept is not None:
            folder = kept / processor_folder(processor, self._places.level)
            with suppress(OSError):  # it is soon made, and kernels tell why they are not kept
                _save(folder / RUNTIME, _runtime_key(processor), made)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled; where that cannot be, it still was compiled."""
        if not self._enabled or self._places.kept is None or not self._may_be_kept(data):
            return
        processor = data.codegen.magic_tuple()
        key = self._key(sig, processor)
        folder = self._places.kept / processor_folder(processor, self._places.level)
        try:
            _save(folder / self._file_name(key), key, data._reduce())
        except OSError as error:
            said = errno.errorcode.get(error.errno or 0, "") and os.strerror(error.errno or 0)
            _tell_not_kept(f"compiled kernels cannot be kept in {folder}: {said or error}")

    def enable(self) -> None:
        """Look for kernels, and keep them."""
        self._enabled = True

    def disable(self) -> None:
        """Neither look for kernels nor keep them."""
        self._enabled = False

    def flush(self) -> None:
        """Forget the kernels that are kept."""
        if self._places.kept is not None:
            for file in self._places.kept.glob(f"*/{self._name}-*{SUFFIX}"):
                file.unlink(missing_ok=True)

    @property
    def _name(self) -> str:
        name = f"{self._function.__module__.removeprefix('puffin_ann.')}.{self._function.__name__}"
        return re.sub(r"[^\w.]", "_", name)

    def _file_name(self, key: str) -> str:
        return f"{self._name}-{hashlib.sha256(key.encode()).hexdigest()[:20]}{SUFFIX}"

    def _key(self, sig: Any, processor: tuple[str, str, str]) -> str:
        """Return in words all that a compiled kernel depends on, but for the sources' digest."""
        arguments, _ = sigutils.normalize_signature(sig)  # type: ignore[no-untyped-call]
        function = self._function
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
        parts = (
            f"{function.__module__}.{function.__qualname__}",
            str(arguments),
            hashlib.sha256(function.__code__.co_code).hexdigest(),
            _digest_of(cells) if cells else "",
            self._places.level,
            *processor,
            *COMPILER,
        )
        return "\n".join(parts)

    def _sources(
        self, processor: tuple[str, str, str]
    ) -> Iterator[tuple[Path, bool, tuple[str, str, str]]]:
        """Give folders to look in, whether we alone write there, and the processor of each."""
        places = self._places
        if places.kept is not None:
            yield places.kept / processor_folder(processor, places.level), True, processor
        made = made_for(places, processor)
        if made is not None:
            yield made[0], False, made[1]

    def _may_be_kept(self, compiled: Any) -> bool:
        return not compiled.lifted and not compiled.library.has_dynamic_globals


def _digest_of(cells: tuple[Any, ...]) -> str:
    return hashlib.sha256(_pickled(cells)).hexdigest()


def _runtime_key(processor: tuple[str, str, str]) -> str:
    return "\n".join(("runtime", *processor, *COMPILER))


FORM = "2"
"""Of these files."""
COMPILER = (sys.implementation.cache_tag or "", numba.__version__, llvmlite.__version__, FORM)
"""What compiles the kernels, and what loads them."""


@lru_cache(maxsize=16)
def processor_folder(processor: tuple[str, str, str], level: str) -> str:
    """Return the name of the folder of the kernels for a processor.

    Args:
        processor: its triple, name and features, as Numba's code generator gives them.
        level: of vector instructions.
    """
    digest = hashlib.sha256("\n".join((*processor, *COMPILER)).encode()).hexdigest()[:8]
    return f"{level}-{re.sub('[^A-Za-z0-9-]', '_', processor[1])}-{digest}"


@lru_cache(maxsize=16)
def made_for(
    places: Places, processor: tuple[str, str, str]
) -> tuple[Path, tuple[str, str, str]] | None:
    """Return the folder of installed kernels for a processor, and the processor they are for.

    That is the very processor, or what is common to those of its level; None if there is no such
    folder, or if it is not as safe as the library's code.

    Args:
        places: where kernels are.
        processor: see `processor_folder`.
    """
    for candidate in (processor, *_common(places.level, processor)):
        folder = places.made / processor_folder(candidate, places.level)
        try:
            require_as_safe_as_code(folder)
        except FileNotFoundError:
            continue
        except (OSError, UnsafeFolderError) as error:
            log.warning("compiled kernels in %s are not used: %s", folder, error)
            continue
        return folder, candidate
    return None


def _common(level: SimdLevel, processor: tuple[str, str, str]) -> list[tuple[str, str, str]]:
    common = common_processor(level)
    has = {flag[1:] for flag in processor[2].split(",") if flag.startswith("+")}
    return [(processor[0], common.name, common.flags)] if common and common.features <= has else []


def require_as_safe_as_code(folder: Path) -> None:
    """Refuse a folder that people could write to who cannot write to the library's code.

    Inside the environment that the library runs from, only what is below its root is looked at:
    whoever could exchange the root could exchange the code, too.
    """
    try:
        steps = folder.relative_to(sys.prefix).parts
    except ValueError:
        if not _is_of_code(folder, os.lstat(folder)):
            private_folders.require_private(folder)
        return
    real = Path(sys.prefix)
    for step in steps:
        real /= step
        status = os.lstat(real)
        if not stat.S_ISDIR(status.st_mode) or not _is_of_code(real, status):
            raise UnsafeFolderError(
                f"{real} is no folder that belongs to whom the library's code belongs, or to root, "
                "and that only they can write to"
            )


def _is_of_code(place: Path | int, status: os.stat_result) -> bool:
    """Tell whether a folder or file is no more open to others than the library's code is.

    Images let root's group write to what they come with, and not to what is installed later.
    """
    code = _code()
    theirs = stat.S_IWOTH
    if not private_folders.group_is_roots(place, status):
        theirs |= stat.S_IWGRP
    is_open = bool(status.st_mode & ~code.st_mode & theirs)
    return status.st_uid in (0, os.geteuid(), code.st_uid) and not is_open


@lru_cache(maxsize=1)
def _code() -> os.stat_result:
    return os.stat(Path(__file__).parent)


def _load(path: Path, key: str, is_ours: bool) -> Any:
    """Return what was kept of a kernel; None if there is nothing, or it is not to be used."""
    with suppress(FileNotFoundError), _telling(path), _opened(path, is_ours) as file:
        data = file.read()
        if zlib.crc32(data[CHECKSUM_BYTES:]).to_bytes(CHECKSUM_BYTES, "little") != data[:4]:
            raise ValueError("its bytes are not those that were written")
        content = io.BytesIO(data[CHECKSUM_BYTES:])
        return numba_start.load(content) if numba_start.load(content) == key else None
    return None


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Take a kernel that cannot be loaded, whatever its bytes trip over, for one that is gone."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        log.warning(
            "compiled kernel %s is not used: %s: %s; it is compiled again",
            path,
            type(error).__name__,
            error,
        )


def _opened(path: Path, is_ours: bool) -> BinaryIO:
    """Open a file of the cache.

    Raises:
        UnsafeFolderError: another user may have written it.
        OSError: it is not there, is a link, or cannot be read.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and _is_trusted(file.fileno(), status, is_ours):
        return file
    file.close()
    raise UnsafeFolderError(
        f"it is no regular file that its user or root alone can write to (it belongs to user "
        f"{status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o})"
    )


def _is_trusted(descriptor: int, status: os.stat_result, is_ours: bool) -> bool:
    if not is_ours:
        return _is_of_code(descriptor, status)
    return (_places is not None and _places.trusted) or private_folders.is_ours(status)


def _save(path: Path, key: str, reduced: Any) -> None:
    payload = _pickled(reduced)
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    content = pickle.dumps(key) + payload
    with _replaced(path) as file:
        file.write(zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "little") + content)


@contextmanager
def _replaced(path: Path) -> Iterator[BinaryIO]:
    partial = f"{path}.{os.urandom(8).hex()}"
    try:
        with open(partial, "xb", opener=_for_us_alone) as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@lru_cache(maxsize=1)
def _tell_not_kept(said: str) -> None:
    log.error(said)


@lru_cache(maxsize=1)
def _tell_compiling(places: Places, processor: tuple[str, str, str]) -> None:
    """Tell once that a kernel is compiled now, which whoever waits for it could not know."""
    where = "not kept" if places.kept is None else f"kept in {places.kept}"
    log.warning(
        "kernels are compiled for this processor (%s, %s instructions), which takes some seconds "
        "each and is done once; they are %s. 'puffin-ann compile' does it ahead",
        processor[1],
        places.level,
        where,
    )
