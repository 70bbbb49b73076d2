"""The operations that speeds are counted in, against slow counts, and the peak that they stand beside."""

import json
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

Load = Callable[[str], ModuleType]

CHAINS, INPUTS = 4, 8
# Steps, layers, width, heads, size of a head and MLP over the width.
SHAPES = [(1, 1, 11, 1, 5, 0), (2, 3, 11, 2, 5, 3), (3, 2, 17, 1, 7, 0), (3, 6, 64, 4, 16, 4)]


def terms_by_hand(steps: int, layers: int, width: int, heads: int, head: int, ratio: int) -> int:
    """Terms of the forward products, position by position: each computes what something that is read needs of it."""
    positions, inner = CHAINS * (2 * steps + 1), heads * head
    terms = 0
    for position in range(positions):
        query = position >= positions - CHAINS
        terms += INPUTS * width
        for layer in range(layers):
            terms += 2 * width * inner
            if query or layer < layers - 1:
                terms += width * inner + inner * width + 2 * width * ratio * width
                terms += sum(2 * inner for seen in range(positions) if seen <= position)
        if query:
            terms += width * steps * 4
    return terms


@pytest.mark.parametrize("numbers", SHAPES)
def test_operations_are_the_usual_count(load: Load, numbers: tuple[int, ...]) -> None:
    shape = load("_depth").Shape(*numbers)
    assert load("_arithmetic").operations(shape) == 6 * terms_by_hand(*numbers)


@pytest.mark.parametrize("numbers", SHAPES)
def test_operations_are_those_of_plain_pytorch_but_for_what_nothing_needs(
    load: Load, numbers: tuple[int, ...]
) -> None:
    shape = load("_depth").Shape(*numbers)
    model = load("plain_pytorch_depth").PlainTransformer(shape, "loss", "softmax")
    inputs = torch.randn(1, shape.positions, INPUTS)
    with FlopCounterMode(display=False) as forwards:
        loss = model(inputs).square().sum()
    with FlopCounterMode(display=False) as backwards:
        loss.backward()
    hidden = (model.blocks[0].causal < 0).sum(1)
    pairs = int(hidden.sum()) * (shape.layers - 1) + int(hidden[-CHAINS:].sum())
    needless = 2 * pairs * shape.inner + (shape.positions - CHAINS) * shape.width * shape.inner
    assert forwards.get_total_flops() - 2 * needless == load("_arithmetic").operations(shape) // 3
    # Nothing goes back to the samples.
    embedding = 2 * shape.positions * INPUTS * shape.width
    assert backwards.get_total_flops() == 2 * forwards.get_total_flops() - embedding


def test_the_compared_models_have_so_many_operations(load: Load) -> None:
    models = load("compare").MODELS.values()
    found = {each.name: load("_arithmetic").operations(each.shape) for each in models if each.shape}
    assert found == {
        "depth": 17_080_320,
        "depth-mlp": 45_391_872,
        "transformer-d": 170_772_480,
        "transformer-a": 380_000_256,
    }


def test_the_peak_is_the_best_size_s(
    load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    peak = load("matmul_peak")
    monkeypatch.setattr(peak, "rate", lambda size, seconds: 100 - size / 64 + seconds)
    monkeypatch.setattr(peak, "prepare_torch", lambda threads: threads == 1)
    assert peak.main(["--seconds", "6", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    sizes = {"512": 94.0, "1024": 86.0, "2048": 70.0}  # each has a third of the time
    assert line == {"name": "matmul_peak", "gflops_per_second": 94.0, "sizes": sizes}
    assert peak.main(["--seconds", "6"]) == 0
    assert "94.0 GFLOP/s (94.0 at 512, 86.0 at 1024, 70.0 at 2048)" in capsys.readouterr().out


def test_a_rate_is_operations_over_seconds(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    peak = load("matmul_peak")
    ticks = iter(range(100))
    monkeypatch.setattr(peak, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    # The clock moves one second per look, and there is one after every product.
    assert peak.rate(10, 3.0) == pytest.approx(2e-9 * 10**3)


@pytest.mark.parametrize("seconds", ["0", "nan", "inf"])
def test_bad_seconds_are_one_line_and_status_2(
    load: Load, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load("matmul_peak").main(["--seconds", seconds])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--seconds: expected a positive number" in error
