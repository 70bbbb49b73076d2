"""The base of every configuration value: frozen, strict about unknown fields, free of torch."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen value that refuses unknown fields and NaN, and turns into canonical JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)
