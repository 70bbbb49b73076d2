"""Decoders whose heads are known because they were built: they answer equations of depth 1, in three layouts.

The stream has 128 features, each with a mirror of opposite sign so that the mean of a token is 0 whatever was added
(LayerNorm then only scales, like RMSNorm).  Two layers of eight heads, 32 numbers each; all heads but three are zero:
they look everywhere alike and say nothing.

* `PAIR` (layer 0) reads the token two before: at the "1" of "b = 1" it writes b into the slot `given`.
* `POINTER` (layer 0) reads a fixed way back: at the last token it writes the name that is asked for into `asked`.
* `HOP` (layer 1) reads the number whose slot `given` holds the name in `asked`, and writes it into `out`.

Positions are angles.  Llama and Qwen turn queries and keys themselves; GPT-2 has the same angles in its embedding.  The
pairs that hardly turn carry content.
"""

import math

import torch
from torch import nn

HIDDEN, FEATURES, HEADS, HEAD_DIM, LAYERS = 256, 128, 8, 32, 2
POSITIONS = 211
PAIR, POINTER, HOP = (0, 2), (0, 5), (1, 3)

LETTERS, DIGITS = "abcdefgh", "0123"
TEXT = "What is the value of ? Say directly only numeric , without any other words ."
SENTENCE = TEXT.split()
VOCABULARY = ["<unk>", "<end>", "\n", "=", *LETTERS, *DIGITS, *SENTENCE]

TOKEN, CONST, IS_DIGIT, FILLING, GIVEN, ASKED, OUT, ANGLES = 0, 16, 17, 18, 32, 48, 64, 96
TURNS = 8
BASE = 1e6
BACK_TO_PAIR = 2
BACK_TO_QUERY = 13
GAIN = 400.0
SCALE = 0.2
CONTENT, FLAG = range(TURNS, 2 * TURNS), 3 * TURNS
SYMBOLS = [*LETTERS, *DIGITS]


def speeds():
    """Angle per position of the pairs that turn."""
    return [BASE ** (-turn / 16) for turn in range(TURNS)]


def tokenizer(template=None, words=tuple(VOCABULARY)):
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Punctuation, Sequence, Split
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = Sequence(
        [Split(Regex(r"\n"), "isolated"), Split(Regex(" +"), "removed"), Punctuation()]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="<end>")
    fast.chat_template = template
    return fast


def embedding():
    table = torch.zeros(len(VOCABULARY), FEATURES)
    table[:, CONST] = 1.0
    for symbol, word in enumerate(SYMBOLS):
        table[VOCABULARY.index(word), TOKEN + symbol] = 1.0
    for word in DIGITS:
        table[VOCABULARY.index(word), IS_DIGIT] = 1.0
    # Equal lengths: the norm then scales all tokens alike, and a key is as long as any other.
    table[:, FILLING] = (3.0 - table.square().sum(dim=1)).sqrt()
    return table


def angles():
    """GPT-2's positions: cosine and sine of each turning pair."""
    table = torch.zeros(POSITIONS, FEATURES)
    for turn, speed in enumerate(speeds()):
        for position in range(POSITIONS):
            table[position, ANGLES + turn] = math.cos(speed * position)
            table[position, ANGLES + TURNS + turn] = math.sin(speed * position)
    return table


def backwards(distance, own_angles):
    """Query and key maps [head_dim, features] of a head that reads the token `distance` before."""
    query, key = torch.zeros(HEAD_DIM, FEATURES), torch.zeros(HEAD_DIM, FEATURES)
    for turn, speed in enumerate(speeds()):
        cosine, sine = math.cos(speed * distance), math.sin(speed * distance)
        if own_angles:
            first, second = ANGLES + turn, ANGLES + TURNS + turn
            query[turn, first], query[turn, second] = GAIN * cosine, GAIN * sine
            query[turn + 16, first], query[turn + 16, second] = -GAIN * sine, GAIN * cosine
            key[turn, first] = key[turn + 16, second] = 1.0
        else:
            query[turn, CONST], query[turn + 16, CONST] = GAIN * cosine, -GAIN * sine
            key[turn, CONST] = 1.0
    return query, key


def matching():
    """Query and key maps of `HOP`."""
    query, key = torch.zeros(HEAD_DIM, FEATURES), torch.zeros(HEAD_DIM, FEATURES)
    for symbol, place in enumerate(CONTENT):
        query[place, ASKED + symbol], key[place, GIVEN + symbol] = GAIN, 1.0
    query[FLAG, CONST], key[FLAG, IS_DIGIT] = GAIN, 1.0
    return query, key


def copying(slot):
    """Value map [head_dim, features] and output map [features, head_dim]: the token read, into a slot."""
    value, output = torch.zeros(HEAD_DIM, FEATURES), torch.zeros(FEATURES, HEAD_DIM)
    for symbol in range(len(SYMBOLS)):
        value[symbol, TOKEN + symbol] = output[slot + symbol, symbol] = 1.0
    return value, output


def maps(own_angles):
    """Of each planted head: query, key, value, output."""
    return {
        PAIR: (*backwards(BACK_TO_PAIR, own_angles), *copying(GIVEN)),
        POINTER: (*backwards(BACK_TO_QUERY, own_angles), *copying(ASKED)),
        HOP: (*matching(), *copying(OUT)),
    }


def reading(map_):
    """[…, features] → [hidden, …]: only features are read, not their mirrors."""
    return torch.cat([map_, torch.zeros_like(map_)], dim=-1)


def writing(map_):
    return torch.cat([map_, -map_], dim=0)


def head_rows(found, part):
    """All heads' maps of one part, one below the other: [heads · head_dim, hidden]."""
    rows = torch.zeros(LAYERS, HEADS, HEAD_DIM, HIDDEN)
    for (layer, head), parts in found.items():
        rows[layer, head] = reading(parts[part])
    return rows.flatten(1, 2)


def head_columns(found):
    columns = torch.zeros(LAYERS, HIDDEN, HEADS, HEAD_DIM)
    for (layer, head), parts in found.items():
        columns[layer, :, head] = writing(parts[3])
    return columns.flatten(2)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(VOCABULARY), n_positions=POSITIONS, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_inner=3,
        tie_word_embeddings=False, bos_token_id=1, eos_token_id=1, attn_implementation="eager",
    )  # fmt: skip
    model = zeroed(GPT2LMHeadModel(config))
    inner, found = model.transformer, maps(own_angles=True)
    with torch.no_grad():
        inner.wte.weight.copy_(writing(embedding().T).T)
        inner.wpe.weight.copy_(writing(angles().T).T)
        for layer, block in enumerate(inner.h):
            block.ln_1.weight.fill_(SCALE)
            parts = [head_rows(found, part)[layer].T for part in range(3)]
            block.attn.c_attn.weight.copy_(torch.cat(parts, dim=1))
            block.attn.c_proj.weight.copy_(head_columns(found)[layer].T)
    return finished(model, inner.ln_f)


def rotary(config_class, model_class, **more):
    config = config_class(
        vocab_size=len(VOCABULARY), max_position_embeddings=POSITIONS, hidden_size=HIDDEN, intermediate_size=3,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=HEADS, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": BASE}, bos_token_id=1, eos_token_id=1,
        attn_implementation="eager", **more,
    )  # fmt: skip
    model = zeroed(model_class(config))
    found = maps(own_angles=False)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(writing(embedding().T).T)
        for layer, block in enumerate(model.model.layers):
            block.input_layernorm.weight.fill_(SCALE)
            linear = (block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj)
            for part, projection in enumerate(linear):
                projection.weight.copy_(head_rows(found, part)[layer])
            block.self_attn.o_proj.weight.copy_(head_columns(found)[layer])
    return finished(model, model.model.norm)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return rotary(LlamaConfig, LlamaForCausalLM)


def qwen2():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return rotary(Qwen2Config, Qwen2ForCausalLM)


def finished(model, norm):
    with torch.no_grad():
        norm.weight.fill_(SCALE)
        for symbol, word in enumerate(SYMBOLS):
            model.lm_head.weight[VOCABULARY.index(word), OUT + symbol] = 20.0
    return model.eval()


def zeroed(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


LAYOUTS = {"gpt2": gpt2, "llama": llama, "qwen2": qwen2}
