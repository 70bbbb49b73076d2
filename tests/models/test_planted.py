"""Each kind of intervention on a model whose answer it must change (and to what), and on one where it must not.

Answers are read at the last row.  Member 0 answers by the planted mechanism.  Member 1 holds the same mechanism, but
answers with its own token: whatever is done to the mechanism, its answer stays.
"""

import pytest
import torch

from hopscope.models.interventions import AblateHead, AblateMLP, ReplacePattern, Site, SwapValues

from .planted import POSITION, POSITIONS, SYMBOL, WRITTEN, Planted, shown
from .samples import under

TOKENS = (2, 0, 3, 3, 3, 4, 1)
DONOR = (0, 4, 2, 2, 2, 2, 3)
OWN = TOKENS[-1]
ROW = {"slot": POSITIONS - 1}


def answers(planted, *interventions, batch=None, means=None):
    """Each member's answer at the last row of the first sample, clean and edited."""
    batch = batch or shown(TOKENS, DONOR)
    with torch.no_grad():
        found = under(planted.model, batch, [], interventions, means=means)
    clean, edited = (predictions[:, 0, -1].argmax(-1).tolist() for predictions in found)
    return clean, edited


def reader(source=2, head=0):
    """Both members read the token at `source`; only member 0 answers with it."""
    planted = Planted(members=2)
    for member in range(2):
        planted.attend_to_position(member, 0, head, source).copy(member, 0, head, SYMBOL)
    return planted.answer(0, WRITTEN).answer(1, SYMBOL)


def finder(symbol=4):
    """Both members find a symbol by content; member 0 answers where it stands."""
    planted = Planted(members=2)
    for member in range(2):
        planted.attend_to_symbol(member, 0, 0, symbol).copy(member, 0, 0, POSITION)
    return planted.answer(0, WRITTEN).answer(1, SYMBOL)


def successor():
    """The MLP writes the successor of the own token; without it the own token is what is left to answer."""
    planted = Planted(members=2)
    for member in range(2):
        planted.write_successor(member, 0)
    return planted.answer(0, WRITTEN).answer(0, SYMBOL, 0.5).answer(1, SYMBOL)


def one_hot_matrix(key):
    return tuple(tuple(float(column == key) for column in range(POSITIONS)) for _ in range(POSITIONS))


# Attention patterns.


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        (ReplacePattern(layer=0, by="identity"), OWN),
        (ReplacePattern(layer=0, by="uniform"), 3),
        (ReplacePattern(layer=0, by="uniform", keys={"slot": 5}), 4),
        (ReplacePattern(layer=0, by="one_hot", relation="source"), TOKENS[1]),
        (ReplacePattern(layer=0, by="matrix", matrix=one_hot_matrix(5)), TOKENS[5]),
        (ReplacePattern(layer=0, heads=(0,), rows=ROW, by="identity"), OWN),
    ],
    ids=["identity", "uniform", "uniform over keys", "one-hot", "matrix", "one head and row"],
)
def test_a_replaced_pattern_makes_the_reader_read_elsewhere(pattern, changed):
    batch = shown(TOKENS, DONOR, source=1)
    assert answers(reader(source=0), pattern, batch=batch) == ([TOKENS[0], OWN], [changed, OWN])


@pytest.mark.parametrize(
    "pattern",
    [
        ReplacePattern(layer=0, heads=(1, 2), by="identity"),
        ReplacePattern(layer=0, rows={"slot": 3}, by="uniform"),
        ReplacePattern(layer=0, by="one_hot", relation="source"),
        ReplacePattern(layer=0, by="uniform", keys={"slot": 0}),
    ],
    ids=["idle heads", "another row", "the key it reads anyway", "the only key it reads anyway"],
)
def test_a_replaced_pattern_that_says_the_same_or_is_elsewhere_changes_nothing(pattern):
    assert answers(reader(source=0), pattern) == ([TOKENS[0], OWN], [TOKENS[0], OWN])


def test_a_mean_pattern_looks_where_the_reference_samples_do():
    elsewhere = shown((0, 0, 0, 4, 0, 0, 0), (1, 1, 1, 4, 1, 1, 1))
    found = answers(
        finder(symbol=4),
        ReplacePattern(layer=0, by="mean"),
        means=finder(symbol=4).model.means(elsewhere.inputs),
    )
    assert found == ([5, OWN], [3, OWN])


def test_a_mean_pattern_changes_nothing_where_attention_ignores_content():
    planted = reader(source=2)
    means = planted.model.means(shown((1, 1, 4, 4, 1, 1, 1)).inputs)
    assert answers(planted, ReplacePattern(layer=0, by="mean"), means=means) == ([3, OWN], [3, OWN])


# Values.


def swap(what, first, second, **changes):
    sites = {"first": Site(roles={"slot": first}), "second": Site(roles={"slot": second})}
    return SwapValues(layer=0, what=what, **sites | changes)


def test_swapped_symbols_change_what_a_token_reader_answers_and_positions_do_not():
    assert answers(reader(source=2), swap("symbol", 2, 5)) == ([3, OWN], [TOKENS[5], OWN])
    assert answers(reader(source=2), swap("position", 2, 5)) == ([3, OWN], [3, OWN])
    assert answers(reader(source=2), swap("stream", 2, 5)) == ([3, OWN], [TOKENS[5], OWN])


def test_swapped_positions_change_where_a_finder_says_it_looked_and_symbols_do_not():
    """Queries and keys stay: a swap that reached them would make the finder look elsewhere."""
    assert answers(finder(symbol=4), swap("position", 5, 0)) == ([5, OWN], [0, OWN])
    assert answers(finder(symbol=4), swap("symbol", 5, 0)) == ([5, OWN], [5, OWN])
    assert answers(finder(symbol=4), swap("stream", 5, 0)) == ([5, OWN], [0, OWN])


def test_a_swap_of_other_positions_or_heads_changes_nothing():
    for edit in (swap("stream", 1, 5), swap("stream", 2, 5, heads=(1,)), swap("stream", 2, 2)):
        assert answers(reader(source=2), edit) == ([3, OWN], [3, OWN])


def test_a_swap_may_follow_a_relation():
    follows = Site(roles=ROW, relation="source")
    edit = SwapValues(layer=0, what="symbol", first=Site(roles={"slot": 2}), second=follows)
    for source, changed in ((1, TOKENS[1]), (5, TOKENS[5]), (-1, 3)):
        batch = shown(TOKENS, DONOR, source=source)
        assert answers(reader(source=2), edit, batch=batch) == ([3, OWN], [changed, OWN])


def test_what_a_layer_moved_is_in_the_stream_but_is_no_symbol_of_that_place():
    """Layer 0 moves the token at 0 to position 4, layer 1 fetches it from there: only a stream swap exchanges it."""
    planted = Planted(layers=2).attend_to_position(0, 0, 0, 0).copy(0, 0, 0, SYMBOL)
    planted.attend_to_position(0, 1, 1, 4).copy(0, 1, 1, WRITTEN).answer(0, WRITTEN)
    # Position 3 shall carry its own token instead, and the last row nothing that layer 0 brought it.
    prepared = [
        ReplacePattern(layer=0, rows={"slot": 3}, by="identity"),
        AblateHead(layer=0, rows=ROW, by="zero"),
    ]
    sites = {"first": Site(roles={"slot": 4}), "second": Site(roles={"slot": 3})}
    for what, changed in (("stream", TOKENS[3]), ("symbol", TOKENS[0]), ("position", TOKENS[0])):
        found = answers(planted, *prepared, SwapValues(layer=1, what=what, **sites))
        assert found == ([TOKENS[0]], [changed])


# Ablations.


def with_fallback():
    """A reader of position 2 that answers with its own token when nothing was written."""
    return reader(source=2).answer(0, SYMBOL, 0.5)


@pytest.mark.parametrize(("by", "changed"), [("zero", OWN), ("mean", 4), ("resample", DONOR[2])])
def test_an_ablated_head_no_longer_reads(by, changed):
    planted = with_fallback()
    means = planted.model.means(shown((0, 1, 4, 0, 2, 3, 0), (3, 0, 4, 1, 2, 0, 1)).inputs)
    assert answers(planted, AblateHead(layer=0, heads=(0,), rows=ROW, by=by), means=means) == (
        [3, OWN],
        [changed, OWN],
    )
    assert answers(planted, AblateHead(layer=0, by=by), means=means) == ([3, OWN], [changed, OWN])


@pytest.mark.parametrize("by", ["zero", "mean", "resample"])
def test_ablating_other_heads_or_rows_changes_nothing(by):
    planted = with_fallback()
    means = planted.model.means(shown((0, 1, 4, 0, 2, 3, 0)).inputs)
    for ablation in (AblateHead(layer=0, heads=(1, 2), by=by), AblateHead(layer=0, rows={"slot": 5}, by=by)):
        assert answers(planted, ablation, means=means) == ([3, OWN], [3, OWN])


@pytest.mark.parametrize(("by", "changed"), [("zero", OWN), ("mean", 0), ("resample", DONOR[-1] + 1)])
def test_an_ablated_mlp_no_longer_counts_on(by, changed):
    planted = successor()
    means = planted.model.means(shown((0, 1, 2, 3, 4, 0, 4), (1, 1, 1, 1, 1, 1, 4)).inputs)
    assert answers(planted, AblateMLP(layer=0, rows=ROW, by=by), means=means) == (
        [OWN + 1, OWN],
        [changed, OWN],
    )
    assert answers(planted, AblateMLP(layer=0, by=by), means=means) == ([OWN + 1, OWN], [changed, OWN])


@pytest.mark.parametrize("by", ["zero", "mean", "resample"])
def test_ablating_an_idle_mlp_or_other_rows_changes_nothing(by):
    planted = successor()
    means = planted.model.means(shown((4, 4, 4, 4, 4, 4, 4)).inputs)
    assert answers(planted, AblateMLP(layer=0, rows={"slot": 2}, by=by), means=means) == ([OWN + 1, OWN],) * 2
    idle = with_fallback()
    means = idle.model.means(shown((4, 4, 4, 4, 4, 4, 4)).inputs)
    assert answers(idle, AblateMLP(layer=0, by=by), means=means) == ([3, OWN], [3, OWN])


def test_the_reader_and_the_plain_module_say_the_same_of_every_row():
    planted = reader(source=2)
    batch = shown(TOKENS, DONOR)
    with torch.no_grad():
        for member in range(2):
            alone = planted.model.member(member)(batch.inputs[0])
            torch.testing.assert_close(planted.model(batch.inputs)[member], alone, rtol=1e-5, atol=1e-5)
            expected = [2, 0, 3, 3, 3, 3, 3] if member == 0 else list(TOKENS)
            assert alone[0].argmax(-1).tolist() == expected
