"""Which settings of Spark a declaration may make: a matter of the machine, not of the file."""

from fnmatch import fnmatchcase

from puffin_ann.declaration.index import IndexDeclaration
from puffin_ann.errors import DeclarationError
from puffin_ann.settings import settings


def check_spark_conf(declaration: IndexDeclaration, *, source: str) -> None:
    """Refuse settings of Spark that this machine does not let declarations make.

    Some are code: `spark.jars` and `spark.pyspark.python` name what is run.

    Args:
        declaration: the index.
        source: what an error names as the origin, usually the file's path.

    Raises:
        DeclarationError: names the source, the settings and what is allowed.
    """
    allowed = settings().spark_conf_allowed
    refused = [
        key
        for key in declaration.spark.conf
        if not any(fnmatchcase(key, pattern) for pattern in allowed)
    ]
    if refused:
        raise DeclarationError(
            f"{source}: field 'spark.conf': {', '.join(map(repr, refused))} may not be set in a "
            f"declaration here; allowed are: {', '.join(allowed) or 'none'} "
            "(PUFFIN_ANN_SPARK_CONF_ALLOWED)"
        )
