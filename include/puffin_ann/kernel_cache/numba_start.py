"""Have Numba ready to run kernels that were compiled before, without what only its compiler needs.

A process that loads its kernels spends most of the time of its first search here: Numba imports the
modules that parts of a kernel are of, compiles the functions that count references to arrays, and
looks through all packages installed for extensions of its compiler. Nothing of that is read by
kernels that are machine code already. What this relies on of Numba is not told in its
documentation; `tests/unit/kernel_cache/test_numba_start.py` holds it to it.
"""

import pickle
import sys
from typing import Any, BinaryIO

from llvmlite import binding
from numba.core import config, entrypoints
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.runtime import nrt, nrtdynmod

_new_environment: Any = Environment
_known_environment: Any = lookup_environment
_environment_of_numba: Any = _rebuild_env
_runtime: Any = nrt.rtsys
_called: Any = nrt
_functions: Any = nrtdynmod
_config: Any = config
_linker: Any = binding


class Unpickler(pickle.Unpickler):
    """Reads what was kept of a kernel, and leaves modules of Numba that it names as they are."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for."""
        found = super().find_class(module, name)
        return _environment if found is _environment_of_numba else found


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """Return the constants of a part of a kernel; stands in for Numba's function, which imports.

    Numba reads the names that the module defines in compiling alone, and of another kind of code.
    """
    if module in sys.modules or not module.startswith("numba."):
        return _environment_of_numba(module, constants, name)
    known = _known_environment(name)
    if known is not None:
        return known
    made = _new_environment({"__name__": module})
    made.consts[:] = constants
    made.env_name = name
    _new_environment._memo[name] = made
    return made


def load(file: BinaryIO) -> Any:
    """Return the next thing of a file that is trusted."""
    return Unpickler(file).load()


def has_runtime() -> bool:
    """Tell whether functions that count references are there."""
    return bool(_runtime._init)


def make_runtime(target_context: Any) -> Any:
    """Compile the functions that count references; return what `take_runtime` takes.

    None where they are not to be kept: Numba was asked for statistics of them.
    """
    if _config.NRT_STATS:
        _runtime.initialize(target_context)
        return None
    _tell_addresses()
    module, library = _functions.create_nrt_module(target_context)
    library.enable_object_caching()
    library.add_ir_module(module)
    library.finalize()
    _runtime._library, _runtime._init = library, True
    return library.serialize_using_object_code()


def take_runtime(target_context: Any, kept: Any) -> None:
    """Take functions that `make_runtime` compiled, for this processor and by this Numba."""
    _tell_addresses()
    _runtime._library = target_context.codegen().unserialize_library(kept)
    _runtime._init = True


def _tell_addresses() -> None:
    """Tell the linker where what those functions call is, as Numba does."""
    for name, address in _called._nrt.c_helpers.items():
        _linker.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def leave_extensions(kernel: Any) -> None:
    """Have a kernel loaded without a search for extensions of the compiler."""
    kernel._compilation_chain_init_hook = lambda: None


def have_extensions() -> None:
    """Do what was left before a kernel is compiled after all."""
    entrypoints.init_all()  # type: ignore[no-untyped-call]
