"""What the models of a declaration share."""

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Model(BaseModel):
    """Data that is never changed, without fields that nobody knows.

    Plans and versions hold declarations as JSON, which has no infinity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, about: ValidationInfo) -> Any:
        """Refuse what Python counts as 1 and 0: `shards: yes` is a slip of the pen."""
        if isinstance(value, bool) and about.field_name is not None:
            kind = cls.model_fields[about.field_name].annotation
            if {int, float} & {kind, *get_args(kind)}:
                raise ValueError("a number is expected, not true or false")
        return value
