"""Import late and little.

`deferred_imports` puts an import off until it is used, `uncollected` keeps the garbage collector
from it, and `extras` says which package to install where one is missing. `pyiceberg_configuration`
has PyIceberg read its configuration, which it does when it is imported.
"""
