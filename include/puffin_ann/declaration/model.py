"""What the models of a declaration share."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Data that is never changed, without fields that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
