"""The loop of answers against a model of plain Python: what is fed, when it ends, what does not fit."""

import pytest
import torch

from hopscope.errors import UserError
from hopscope.language.inspect.continuing import BATCH, TokenAnswerer, choose, equal_lengths

VOCABULARY = 11
STOP, FULL_STOP = 7, 9


class Counting(TokenAnswerer):
    """Says one more than the last token that it has read, from tokens that are the letters' places in the alphabet."""

    ends = (STOP, FULL_STOP)

    def __init__(self, context=None):
        self.context, self.fed = context, []

    def tokens(self, prompt):
        return [ord(letter) - ord("a") for letter in prompt]

    def text(self, tokens):
        return "".join(chr(ord("a") + token) for token in tokens)

    def forward(self):
        self.fed.append([])

        def logits(new):
            self.fed[-1].append(new.tolist())
            return torch.nn.functional.one_hot((new[:, -1] + 1) % VOCABULARY, VOCABULARY).float()

        return logits


class Cut(Counting):
    cuts = True


def test_a_row_ends_at_its_first_end_and_a_batch_with_its_last_row():
    counting = Counting()
    assert counting.answer(["ab", "ca", "be", "ce"], 0.0, [0] * 4, 5) == ["cdefg", "bcdef", "fg", "fg"]
    assert counting.answer(["f", "b", "e"], 0.0, [0] * 3, 13) == ["g", "cdefg", "fg"]
    # Prompts whole, then one token of every row; nothing is read behind the last end.
    assert counting.fed[-1] == [[[5], [1], [4]], *([[6 + n], [2 + n], [5 + n]] for n in range(5))]


def test_prompts_of_equal_length_are_asked_together():
    counting = Counting()
    assert counting.answer(["b", "ab", "d"], 0.0, [0] * 3, 1) == ["c", "c", "e"]
    assert [batch[0] for batch in counting.fed] == [[[1], [3]], [[0, 1]]]
    assert counting.answer([], 0.0, []) == []


def test_every_row_is_in_one_batch_which_is_not_too_large():
    lengths = [3, 5] * BATCH + [3]
    batches = equal_lengths([[0] * length for length in lengths])
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    assert sorted(map(len, batches)) == [1, BATCH, BATCH]
    assert all(len({lengths[row] for row in rows}) == 1 for rows in batches)


def test_where_answers_are_whole_prompts_leave_room_for_the_longest():
    assert Counting(context=5).answer(["aa"], 0.0, [0], 3) == ["bcd"]
    with pytest.raises(UserError, match="expected at most 5 tokens with the answer, found 6; ask shorter"):
        Counting(context=5).answer(["a", "aa"], 0.0, [0, 0], 4)


def test_where_answers_are_cut_a_prompt_may_fill_the_context():
    assert Cut(context=5).answer(["aaa", "aaaaa"], 0.0, [0, 0], 4) == ["bcd", "b"]
    with pytest.raises(UserError, match=r"expected at most 5 tokens, found 6; ask shorter questions$"):
        Cut(context=5).answer(["aaaaaa"], 0.0, [0], 1)


def test_shapes_are_checked_in_this_room_too():
    assert choose(torch.eye(3), 0.0, torch.zeros(3, dtype=torch.int64), 0).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="parameter seeds"):
        choose(torch.eye(3), 0.0, torch.zeros(5, dtype=torch.int64), 0)
