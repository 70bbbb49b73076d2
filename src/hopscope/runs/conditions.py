"""Conditions on the columns of a table: a value, or several in a list, tuple or set; `None` means null."""

from typing import Any

import numpy as np
import pyarrow as pa

from hopscope.errors import UserError
from hopscope.strict_json import canonical_json


def wanted_values(name: str, kind: pa.DataType, value: Any, is_json: bool = False) -> list[Any]:
    """Values that a condition on a column admits, in the column's form.

    Raises:
        UserError: the column holds values of another kind.
    """
    if isinstance(value, np.ndarray) or hasattr(value, "to_list"):
        value = value.tolist()
    several = isinstance(value, (list, tuple, set, frozenset, range))
    values = [
        item.item() if isinstance(item, np.generic) else item for item in (value if several else [value])
    ]
    if is_json:
        whole = [value] if isinstance(value, (list, tuple)) else []
        texts = [item for item in values if isinstance(item, str)]
        return [*texts, *(None if item is None else canonical_json(item) for item in [*values, *whole])]
    return [_cast(name, kind, item) for item in values]


def _cast(name: str, kind: pa.DataType, value: Any) -> Any:
    """A value as a column holds it; a fraction in a column of whole numbers stays, and matches nothing."""
    if value is None:
        return None
    words: str = "a number"
    kinds: tuple[type, ...] = (int, float)
    if pa.types.is_string(kind):
        words, kinds = "a text", (str,)
    elif pa.types.is_boolean(kind):
        words, kinds = "True or False", (bool,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise UserError(f"{name}: expected {words}, as the column holds, found {value!r}")
    if pa.types.is_integer(kind) and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def filtered(table: pa.Table, name: str, value: Any, is_json: bool = False) -> pa.Table:
    """Rows whose column has one of the admitted values."""
    import pyarrow.compute as pc

    kind = table[name].type
    wanted = wanted_values(name, kind, value, is_json)
    if pa.types.is_integer(kind):
        wanted = [item for item in wanted if item is None or isinstance(item, int)]
    return table.filter(pc.is_in(table[name], value_set=pa.array(wanted, kind)))
