"""Import late and little.

`deferred_imports` puts an import off until it is used, `uncollected` keeps the garbage collector
from it, and `extras` says which package to install where one is missing.
"""
