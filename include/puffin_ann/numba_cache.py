"""Load compiled kernels from Numba's cache: those of this user, without what compiling needs.

A file of the cache is unpickled and its machine code is run. So kernels of this package are loaded
only from folders that no other user can write to, and from files that belong to this user or to
root; any other file counts as if it were not there. Nor is a damaged cache, or a full disk, a
reason not to answer: kernels are compiled, and not kept.

Before Numba looks into its cache it imports and registers everything a kernel might be made of:
linear algebra, random numbers, strings, typed lists. That takes three times as long as loading the
kernels of a search, which are machine code and need none of it. Where a kernel is not in the cache,
Numba's compiler does the same anyway before it begins.
"""

import errno
import logging
import os
import pickle
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.runtime.nrt import rtsys

from puffin_ann import private_folders
from puffin_ann.errors import UnsafeFolderError

log = logging.getLogger("puffin_ann")

_load_any: Any = FunctionCache.load_overload
_save_any: Any = FunctionCache.save_overload
_enable_any: Any = Dispatcher.enable_caching


class _Place:
    """Where kernels may be kept, as `install` was called with."""

    kept: ClassVar[bool] = True
    trusted: ClassVar[bool] = False


def install(*, kept: bool = True, trusted: bool = False) -> None:
    """Have this package's kernels loaded and kept that way in this process.

    Args:
        kept: there is a place for compiled kernels. Without one, Numba would refuse to define them.
        trusted: everyone who can write to that place is trusted.
    """
    _Place.kept, _Place.trusted = kept, trusted
    cache: Any = FunctionCache
    cache.load_overload, cache.save_overload = _load, _save
    dispatcher: Any = Dispatcher
    dispatcher.enable_caching = _enable


class KernelFiles(IndexDataCacheFile):
    """The files of one kernel in the cache; read only if nobody else can have written them."""

    def _load_index(self) -> dict[Any, str]:
        try:
            with _opened(self._index_path) as file:
                if _unpickled(file) != numba.__version__:
                    return {}
                stamp, names = _unpickled(file)
        except FileNotFoundError:
            return {}
        except Exception as error:  # whatever unpickling of damaged bytes trips over
            _tell_unreadable(self._index_path, error)
            return {}
        return dict(names) if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        path = os.path.join(self._cache_path, name)
        try:
            with _opened(path) as file:
                return _unpickled(file)
        except FileNotFoundError:
            return None
        except Exception as error:  # as above
            _tell_unreadable(path, error)
            return None

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[BinaryIO]:
        partial = f"{filepath}.{os.urandom(8).hex()}"
        try:
            with open(partial, "xb", opener=_for_us_alone) as file:
                yield file
            os.replace(partial, filepath)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise


_make_cache: Any = FunctionCache
_make_files: Any = KernelFiles


def _opened(path: str) -> BinaryIO:
    """Open a file of the cache.

    Raises:
        UnsafeFolderError: another user may have written it.
        OSError: it is not there, is a link, or cannot be read.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and (_Place.trusted or private_folders.is_ours(status)):
        return file
    file.close()
    raise UnsafeFolderError(
        f"it is no regular file that its user or root alone can write to (it belongs to user "
        f"{status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o})"
    )


def _unpickled(file: BinaryIO) -> Any:
    return pickle.load(file)  # noqa: S301 - of files that `_opened` found to be our own


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _tell_unreadable(path: str, error: Exception) -> None:
    log.warning(
        "compiled kernel %s is not used: %s: %s; it is compiled again",
        path,
        type(error).__name__,
        error,
    )


def _is_ours(function: Any) -> bool:
    return bool(function.__module__.startswith("puffin_ann."))


def _enable(self: Any) -> None:
    """Stands in for `Dispatcher.enable_caching`; kernels of other packages are kept as ever."""
    if not _is_ours(self.py_func):
        _enable_any(self)
        return
    if not _Place.kept:
        return
    try:
        cache = _make_cache(self.py_func)
    except RuntimeError as error:  # no folder can be written to
        _tell_not_kept(f"NUMBA_CACHE_DIR={os.environ.get('NUMBA_CACHE_DIR')} cannot be used", error)
        return
    if not _Place.trusted and not _is_private(cache.cache_path):
        return
    stamp = cache._impl.locator.get_source_stamp()
    cache._cache_file = _make_files(cache.cache_path, cache._impl.filename_base, stamp)
    self._cache = cache


@lru_cache(maxsize=256)  # a folder holds the kernels of many functions
def _is_private(folder: str) -> bool:
    try:
        private_folders.require_private(Path(folder))
    except (OSError, UnsafeFolderError) as error:
        _tell_not_kept(folder, error)
        return False
    return True


@lru_cache(maxsize=1)
def _tell_once(said: str) -> None:
    log.error(said)  # until it is repaired, every new process waits for compilation


def _tell_not_kept(place: str, error: Exception) -> None:
    _tell_once(
        f"kernels are compiled again by each process, which takes minutes: {place}: {error}; set "
        "NUMBA_CACHE_DIR, or PUFFIN_ANN_CACHE_DIR, to a folder of your own"
    )


def _load(self: Any, sig: Any, target_context: Any) -> Any:
    """Stands in for `FunctionCache.load_overload`; kernels of other packages load as ever."""
    if not _is_ours(self._py_func):
        return _load_any(self, sig, target_context)
    start: Any = rtsys.initialize
    start(target_context)  # memory for arrays that a kernel makes
    return self._load_overload(sig, target_context)


def _save(self: Any, sig: Any, data: Any) -> None:
    """Stands in for `FunctionCache.save_overload`: what cannot be kept was still compiled."""
    if not _is_ours(self._py_func):
        _save_any(self, sig, data)
        return
    try:
        self._save_overload(sig, data)
    except OSError as error:
        said = errno.errorcode.get(error.errno or 0, "") and os.strerror(error.errno or 0)
        _tell_once(f"compiled kernels cannot be kept in {self.cache_path}: {said or error}")
