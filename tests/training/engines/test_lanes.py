"""Samples side by side in vector registers: what their arithmetic gives."""

import numpy as np
import pytest
import torch

numba = pytest.importorskip("numba", reason="numba is optional")
lanes = pytest.importorskip("hopscope.training.engines.lanes")


def test_powers_of_two():
    @numba.njit
    def powers(x, out):
        for row in range(len(x)):
            lanes.store(out, (row,), lanes.power_of_two(lanes.load(x, (row,))))

    numbers = np.linspace(-140.0, 0.0, 1001 * lanes.LANES, dtype=np.float32)
    numbers[:3] = (-np.inf, np.nan, -1e30)
    out = np.zeros((1001, lanes.LANES), dtype=np.float32)
    powers(numbers.reshape(out.shape), out)
    found = out.ravel()
    assert np.isnan(found[1]) and found[0] == found[2] == 2.0**-126 and found[-1] == 1.0
    normal = numbers >= -126.0
    np.testing.assert_allclose(found[normal], np.exp2(numbers[normal].astype(np.float64)), rtol=5e-7)


def test_lanes_flush_subnormals_where_torch_does():
    @numba.njit
    def product(a, b, out):
        lanes.store(out, (0,), lanes.load(a, (0,)) * lanes.load(b, (0,)))

    small = np.full((1, lanes.LANES), 1e-30, dtype=np.float32)
    smaller = np.full((1, lanes.LANES), 1e-10, dtype=np.float32)
    kept, flushed = np.zeros_like(small), np.ones_like(small)
    product(small, smaller, kept)
    torch.set_flush_denormal(True)
    try:
        product(small, smaller, flushed)
    finally:
        torch.set_flush_denormal(False)
    assert (kept > 0.0).all() and (flushed == 0.0).all()
