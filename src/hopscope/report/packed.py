"""Arrays inside JSON: base64 of their bytes, checked to fill the shape that stands beside them."""

import base64
import binascii
import math
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from hopscope.config import Config


class _Packed(Config):
    """An array in row-major order, `item_size` bytes for each number."""

    item_size: ClassVar[int]

    shape: list[Annotated[int, Field(ge=1)]]
    data: str

    @model_validator(mode="after")
    def _fills_its_shape(self) -> Self:
        expected = self.item_size * math.prod(self.shape)
        try:
            found = len(base64.b64decode(self.data, validate=True))
        except binascii.Error:
            raise ValueError(f"base64 of {expected} bytes") from None
        if found != expected:
            raise ValueError(f"{expected} bytes for the shape {self.shape}, not {found}")
        return self


class PackedArray(_Packed):
    """An array as base64 of little-endian float32 in row-major order."""

    item_size: ClassVar[int] = 4


class PackedBytes(_Packed):
    """An array as base64 of uint8 in row-major order."""

    item_size: ClassVar[int] = 1
