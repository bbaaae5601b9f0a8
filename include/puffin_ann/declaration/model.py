"""What the models of a declaration share."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Data that is never changed, without fields that nobody knows.

    Declarations stand as JSON in plans and versions, which has no infinity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
