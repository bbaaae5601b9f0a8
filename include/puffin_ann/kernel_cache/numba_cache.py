"""Have Numba take compiled kernels from this package's folders, and keep them there.

Kernels of this package are loaded only from folders and files that no other user can write to, see
`kernel_folders` and `kernel_files`. Nor is a damaged cache, or a full disk, a reason not to answer:
kernels are compiled, and not kept.

There is one file for each signature of a kernel, named by what it was compiled from and for.
Numba's own cache numbers its files in an index, which two processes that compile at once overwrite
for each other, so that one could load the other's kernel.

Before Numba looks into its cache it imports and registers everything a kernel might be made of:
linear algebra, random numbers, strings, typed lists. That takes three times as long as loading the
kernels of a search, which are machine code and need none of it; see also `numba_start`. Where a
kernel is not in the cache, Numba's compiler does the same anyway before it begins.
"""

import errno
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from numba.core import config, sigutils
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher

from puffin_ann.errors import BadInputError
from puffin_ann.imports.uncollected import uncollected
from puffin_ann.kernel_cache import numba_start
from puffin_ann.kernel_cache.kernel_files import (
    RUNTIME,
    SUFFIX,
    Writers,
    load,
    pickled,
    save,
    telling,
)
from puffin_ann.kernel_cache.kernel_folders import COMPILER, Places, made_for, processor_folder
from puffin_ann.kernel_cache.simd_levels import SimdLevel

log = logging.getLogger("puffin_ann.kernels")

_enable_any: Any = Dispatcher.enable_caching
_CacheOfNumba: Any = _Cache
_config: Any = config

_has_addresses = attrgetter("library.has_dynamic_globals")
"""Whether a compiled kernel has addresses of this process in it, which no other process can use."""


def install(*, made: Path, kept: Path | None, trusted: bool, level: SimdLevel) -> None:
    """Have the kernels that this process defines from now on loaded and kept in these places.

    Args:
        made: see `Places`.
        kept: as above.
        trusted: as above.
        level: as above.

    Raises:
        BadInputError: Numba was told to compile nothing: what calls kernels counts on machine code.
    """
    global _places
    if _config.DISABLE_JIT:
        raise BadInputError(
            f"NUMBA_DISABLE_JIT={_config.DISABLE_JIT} is not allowed: searches and builds need "
            "compiled kernels; unset it, or set it to 0"
        )
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
        for folder, writers, processor in self._sources(codegen.magic_tuple()):
            key = self._key(sig, processor)
            with uncollected():  # it may import modules that its parts are of
                found = load(folder / self._file_name(key), key, writers)
            if found is not None:
                rebuild: Any = CompileResult._rebuild
                with telling(folder / self._file_name(key)):
                    return rebuild(target_context, *found)
        _tell_compiling(self._places, codegen.magic_tuple())
        numba_start.have_extensions()
        return None

    def _start_runtime(self, target_context: Any) -> None:
        """Have what counts references to the arrays that a kernel makes, loaded or compiled."""
        if numba_start.has_runtime():
            return
        processor = target_context.codegen().magic_tuple()
        for folder, writers, its_processor in self._sources(processor):
            found = load(folder / RUNTIME, _runtime_key(its_processor), writers)
            if found is not None:
                with telling(folder / RUNTIME):
                    numba_start.take_runtime(target_context, found)
                    return
        made, kept = numba_start.make_runtime(target_context), self._places.kept
        if made is not None and kept is not None:
            folder = kept / processor_folder(processor, self._places.level)
            with suppress(OSError):  # it is soon made, and kernels tell why they are not kept
                save(folder / RUNTIME, _runtime_key(processor), made)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled; where that cannot be, it still was compiled."""
        if not self._enabled or self._places.kept is None or _has_addresses(data):
            return
        processor = data.codegen.magic_tuple()
        key = self._key(sig, processor)
        folder = self._places.kept / processor_folder(processor, self._places.level)
        try:
            save(folder / self._file_name(key), key, data._reduce())
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
    ) -> Iterator[tuple[Path, Writers, tuple[str, str, str]]]:
        """Give folders to look in, who may have written there, and the processor of each."""
        places = self._places
        if places.kept is not None:
            writers: Writers = "anyone" if places.trusted else "this user"
            yield places.kept / processor_folder(processor, places.level), writers, processor
        made = made_for(places, processor)
        if made is not None:
            yield made[0], "of the code", made[1]


def _digest_of(cells: tuple[Any, ...]) -> str:
    return hashlib.sha256(pickled(cells)).hexdigest()


def _runtime_key(processor: tuple[str, str, str]) -> str:
    return "\n".join(("runtime", *processor, *COMPILER))


@lru_cache(maxsize=1)
def _tell_not_kept(said: str) -> None:
    log.error(said)


@lru_cache(maxsize=1)
def _tell_compiling(places: Places, processor: tuple[str, str, str]) -> None:
    """Tell once that a kernel is compiled now, which whoever waits for it could not know."""
    where = "not kept" if places.kept is None else f"kept in {places.kept}"
    folder = os.environ.get("PUFFIN_ANN_KERNELS_DIR")
    if folder and not os.path.isdir(folder):
        where += f"; there is no folder {folder}, which PUFFIN_ANN_KERNELS_DIR names"
    log.warning(
        "kernels are compiled for this processor (%s, %s instructions), which takes some seconds "
        "each and is done once; they are %s. 'puffin-ann compile' does it ahead",
        processor[1],
        places.level,
        where,
    )
