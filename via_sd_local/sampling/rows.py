"""Passes over one row of logits, `[n_vocab]` in single precision.

The library of `native/logit-rows.cpp` makes them, which takes a tenth of NumPy's time for a large vocabulary: NumPy
writes whole temporary rows. Where the library was not built, and for other arrays, NumPy computes the same.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from ..libraries import LIBRARIES, library_file

_int, _float, _pointer = ctypes.c_int32, ctypes.c_float, ctypes.c_void_p
_SIGNATURES = {
    "rows_sum_exp": ([_pointer, _int, _float, _float], ctypes.c_double),
    "rows_top_k": ([_pointer, _int, _int, _pointer, _pointer], _int),
    "rows_at_least": ([_pointer, _int, _float, _int, _pointer], _int),
}


@cache
def _library() -> ctypes.CDLL | None:
    path = LIBRARIES / library_file("via-sd-rows")
    if not path.is_file():
        return None
    library = ctypes.CDLL(str(path))
    for name, (arguments, result) in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


def _library_for(row: Floats) -> ctypes.CDLL | None:
    return _library() if row.dtype == np.float32 and row.flags.c_contiguous and len(row) else None


def sum_exp(row: Floats, largest: float, scale: float = 1.0) -> float:
    """Return the sum of exp(scale · (row - largest)); `largest` is the largest logit, `scale` is above 0.

    exp(0) / sum_exp(row, row.max()) is the softmax probability of the best token. The relative error is below 1e-6.
    """
    library = _library_for(row)
    if library is None:
        return float(np.exp((row.astype(np.float64) - largest) * scale).sum())
    return float(library.rows_sum_exp(row.ctypes.data, len(row), largest, scale))


def top_k(row: Floats, k: int) -> tuple[npt.NDArray[np.int32], Floats]:
    """Return the ids and logits of the k largest logits, `[min(k, n_vocab)]` each, in descending order.

    Of equal logits, those with the smaller id come first.
    """
    k = min(k, len(row))
    library = _library_for(row)
    if library is None:
        ids = np.argsort(-row, kind="stable")[:k].astype(np.int32)
        return ids, row[ids]
    ids, logits = np.empty(k, np.int32), np.empty(k, np.float32)
    library.rows_top_k(row.ctypes.data, len(row), k, ids.ctypes.data, logits.ctypes.data)
    return ids, logits


def at_least(row: Floats, least: float, most: int) -> npt.NDArray[np.int32] | None:
    """Return the ids of the logits of at least `least`, in ascending order; None if there are more than `most`."""
    library = _library_for(row)
    if library is None:
        ids = np.flatnonzero(row >= np.float32(least)).astype(np.int32)
        return ids if len(ids) <= most else None
    ids = np.empty(most, np.int32)
    count = library.rows_at_least(row.ctypes.data, len(row), least, most, ids.ctypes.data)
    return ids[:count] if count >= 0 else None
