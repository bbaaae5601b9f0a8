"""What a declaration may ask of Spark: a matter of the machine, not of the file."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from puffin_ann.declaration.index import IndexDeclaration
from puffin_ann.errors import DeclarationError
from puffin_ann.settings import settings


def check_spark(declaration: IndexDeclaration, *, source: str) -> None:
    """Refuse what this machine does not let declarations ask of Spark.

    Some settings are code: `spark.jars` and `spark.pyspark.python` name what is run.

    Args:
        declaration: the index.
        source: what an error names as the origin, usually the file's path.

    Raises:
        DeclarationError: names the source, the settings and what is allowed.
    """
    spark, here = declaration.spark, settings()
    for names, allowed, variable in (
        (spark.names, here.spark_conf_allowed, "PUFFIN_ANN_SPARK_CONF_ALLOWED"),
        ((spark.submit,), here.submit_allowed, "PUFFIN_ANN_SUBMIT_ALLOWED"),
    ):
        refused = _refused(names, allowed)
        if refused:
            raise DeclarationError(
                f"{source}: field 'spark': {', '.join(map(repr, refused))} may not be set in a "
                f"declaration here; allowed are: {', '.join(allowed) or 'none'} ({variable})"
            )


def _refused(names: Iterable[str], allowed: tuple[str, ...]) -> list[str]:
    return [name for name in names if not any(fnmatchcase(name, pattern) for pattern in allowed)]
