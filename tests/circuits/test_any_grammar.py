"""Rows and rules of a user's task: told apart as finely as they must be, and named in the author's words."""

import pytest
import torch

import hopscope as hs
from hopscope.circuits.any_grammar import RoleGrammar
from hopscope.circuits.any_task import AnyTask
from hopscope.models.patterns import Identity, OverRole, OwnChain, Related, TwoTargets, said

from .any_tasks import on_device
from .plain import weights

POSITIONS, VALUES = 11, 5


class Free(hs.Task):
    """Tokens with whatever roles and relations: the number of each sample is its index."""

    kinds: tuple[str, ...] = ()
    partners: tuple[str, ...] = ()

    def shape(self):
        return hs.Shape(
            inputs="tokens", input_size=VALUES, positions=POSITIONS, readout=(7, 10), output_size=VALUES
        )

    def sample(self, draws):
        tokens = draws.integers("tokens", VALUES, (POSITIONS,))
        position = draws.constant(list(range(POSITIONS)), (POSITIONS,))
        half = (draws.index % 2)[:, None].expand(*draws.size, 1)
        roles = {
            "parity": position % 2,
            "third": position // 4,
            "all": torch.zeros_like(position),
            "token": tokens,
            "unique": 100 * draws.integers("unique", 999, (POSITIONS,)) + position,
            "place": position,
            "quarter": position % 4,
            "chain": position // 4,
        }
        # The same token before, if there is one; in every second sample the one before; the token after.
        before = (tokens[..., None, :] == tokens[..., :, None]).tril(-1)
        relations = {
            "copy": torch.where(before.any(-1), (before * (position[..., None, :] + 1)).argmax(-1), -1),
            "sometimes": torch.where(half == 0, position - 1, -1),
            "back": position - 1,
            "three back": torch.where(position >= 3, position - 3, -1),
            "after": torch.where(position < POSITIONS - 1, position + 1, -1),
        }
        return hs.Batch(
            inputs=tokens,
            targets=tokens[..., [7, 10]],
            roles={name: roles[name] for name in self.kinds},
            relations={name: relations[name] for name in self.partners},
        )

    @property
    def words(self):
        return {"roles": {"parity": ("even", "odd"), "third": ("low", "", "high")}}


def grammar(task, causal=True, samples=23) -> RoleGrammar:
    setting = AnyTask(on_device(task))
    return setting.grammar(setting.batch(3, samples, "search"), causal=causal)


def words(task) -> list[str]:
    found = grammar(task)
    return [found.words(roles) for roles in found.roles]


def rules(found, role) -> dict[str, str]:
    number = [found.words(roles) for roles in found.roles].index(role)
    return {found.target(number, rule): said(rule) for rule in found.rules(number)}


# Rows.


def test_without_roles_every_position_is_a_row_of_its_own():
    assert words(Free()) == [f"position {number}" for number in range(POSITIONS)]


def test_rows_are_told_by_the_roles_and_by_being_read_out():
    assert words(Free(kinds=("parity",))) == ["even", "odd", "odd asked", "even asked"]
    # Of a value without a word the role's name is told.
    assert words(Free(kinds=("third",))) == ["low", "third 1", "third 1 asked", "high", "high asked"]


def test_roles_that_tell_nothing_more_or_too_much_are_left_out():
    whole = words(Free(kinds=("parity", "third")))
    assert words(Free(kinds=("parity", "all", "third", "unique"))) == whole
    assert whole == [
        "even low",
        "odd low",
        "even",
        "odd",
        "odd asked",
        "even high",
        "odd high",
        "even high asked",
    ]
    assert words(Free(kinds=("unique", "chain"))) == words(Free())
    assert words(Free(kinds=("all",))) == ["all 0", "all 0 asked"]
    # 11 places and 5 tokens would be 55 rows.
    assert words(Free(kinds=("place", "token"))) == [f"place {number}" for number in range(POSITIONS)]


def test_rows_are_told_apart_where_some_have_a_partner_and_others_none():
    found = words(Free(kinds=("parity",), partners=("copy",)))
    assert {"even", "even with copy", "odd", "odd with copy", "odd asked with copy"} <= set(found)
    assert words(Free(partners=("three back",))) == words(Free())
    sometimes = words(Free(partners=("sometimes",)))
    assert sometimes[:4] == [
        "position 0",
        "position 1 with sometimes",
        "position 1",
        "position 2 with sometimes",
    ]
    assert len(sometimes) == 2 * POSITIONS - 1


@pytest.mark.parametrize("kinds", [(), ("parity",), ("parity", "third")])
def test_rows_have_one_role_each_and_the_same_on_all_samples(kinds):
    task = Free(kinds=kinds, partners=("copy",))
    few, many = grammar(task, samples=2), grammar(task, samples=37)
    assert few.roles == many.roles
    assert (many.rows.sum(0) == 1).all()
    assert len(many.roles) <= 2 * POSITIONS
    # A row that no sample here has can be asked about all the same.
    none = next(number for number, rows in enumerate(few.rows) if not rows.any())
    assert few.rules(none) == []
    assert few.target(none, Related(relation="copy")) == "copy"


# Rules.


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kinds", [(), ("parity",), ("parity", "third"), ("quarter", "chain")])
def test_every_rule_is_the_pattern_of_plain_loops(kinds, causal):
    found = grammar(Free(kinds=kinds, partners=("copy", "three back", "after")), causal, samples=7)
    kept = set()
    for number in range(len(found.roles)):
        for rule in found.rules(number):
            kept.add(type(rule))
            pattern = found.pattern(rule)
            for sample, row in found.rows[number].nonzero().tolist()[:5]:
                expected = weights(found.batch, causal, rule, sample, row)
                assert torch.allclose(pattern[sample, row], expected, atol=1e-6), rule
    assert {Related, OverRole} <= kept
    assert (OwnChain in kept) == ("chain" in kinds)


def test_relations_have_the_names_that_their_author_gave():
    task = Free(kinds=("parity",), partners=("copy", "back"))
    odd = rules(grammar(task), "odd with copy")
    assert odd["copy"] == "copy"
    assert odd["back (even)"] == "back"
    assert "previous" not in odd.values()


def test_the_task_s_own_relation_comes_before_a_role_that_says_the_same():
    found = rules(grammar(Free(partners=("three back",))), "position 7")
    assert found["three back (position 4)"] == "three back"
    assert found["previous (position 6)"] == "previous"
    assert found["position 5"] == "over_role"
    assert "position 4" not in found
    assert "after" not in " ".join(rules(grammar(Free(partners=("after",))), "position 7"))
    assert "after (position 8)" in rules(grammar(Free(partners=("after",)), causal=False), "position 7")


def test_all_tokens_of_a_role_are_told_from_the_only_one():
    found = grammar(Free(kinds=("parity", "third")))
    # Position 10 is the only one of its roles, and of those of position 7 there is position 5 too.
    assert {"all even", "all low", "all odd low", "even high"} <= set(rules(found, "even high asked"))
    assert {"all even", "all odd low", "odd"} <= set(rules(found, "odd asked"))


def test_half_of_a_read_may_be_the_row_itself():
    found = grammar(Free(partners=("three back",)))
    number = [found.words(roles) for roles in found.roles].index("position 7")
    back = Related(relation="three back")
    own = 0.6 * found.pattern(back) + 0.4 * found.pattern(Identity())
    two = found.two_targets(number, own, [rule for rule in found.rules(number) if rule != Identity()])
    assert two == TwoTargets(first=Identity(), second=back, share=0.4)
    assert found.target(number, two) == "three back (position 4) + itself"


def test_mean_weights_by_symbol_need_few_symbols():
    class Large(Free):
        def shape(self):
            return super().shape().model_copy(update={"input_size": 99, "output_size": 99})

        def sample(self, draws):
            found = super().sample(draws)
            return hs.Batch(inputs=20 * found.inputs, targets=found.targets)

    by = {
        task: {rule.by for rule in grammar(task).weighted(3, grammar(task).pattern(Identity()))}
        for task in (Free(), Large())
    }
    assert list(by.values()) == [{"position", "symbol"}, {"position"}]
