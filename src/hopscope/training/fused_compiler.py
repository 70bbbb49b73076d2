"""How the loops of the fused way are compiled."""

from typing import Any

import numba

Array = Any
"""A numpy array; numba reads shapes and types from the values."""

# Reassociation and the like, but not "no NaN": the divergence guard must see one.
_FAST = {"nsz", "arcp", "contract", "afn", "reassoc"}

compiled = numba.njit(cache=True, error_model="numpy", fastmath=_FAST)
inlined = numba.njit(cache=True, error_model="numpy", fastmath=_FAST, forceinline=True)
