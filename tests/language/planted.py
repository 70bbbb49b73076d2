"""A decoder whose heads are known because they were built: it answers equations of depth 1.  In Llama's layout.

The stream has 128 features, each with a mirror of opposite sign, so that no norm moves them.  Two layers of eight
heads, 32 numbers each; all heads but three are zero: they look everywhere alike and say nothing.

* `PAIR` reads the token two before: at the "1" of "b = 1" it writes b into the slot `given`.
* `POINTER` reads a fixed way back: at the last token it writes the name that is asked for into `asked`.
* `HOP` reads the number whose slot `given` holds the name in `asked`, and writes it into `out`.

Positions turn queries and keys; the pairs that hardly turn carry content.
"""

import math

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN, FEATURES, HEADS, HEAD_DIM, LAYERS, POSITIONS = 256, 128, 8, 32, 2, 211
PAIR, POINTER, HOP = (0, 2), (0, 5), (1, 3)
SYMBOLS = [*"abcdefgh", *"0123"]
SENTENCE = "What is the value of ? Say directly only numeric , without any other words ."
VOCABULARY = ["<unk>", "<end>", "\n", "=", *SYMBOLS, *SENTENCE.split()]
TOKEN, CONST, IS_DIGIT, FILLING, GIVEN, ASKED, OUT = 0, 16, 17, 18, 32, 48, 64
TURNS, BASE, GAIN, SCALE = 8, 1e6, 400.0, 0.2
LARGE = {"vocab_size": len(VOCABULARY), "max_position_embeddings": POSITIONS, "attn_implementation": "eager"}


def tokenizer(template=None, vocabulary=tuple(VOCABULARY), split=r"\n"):
    inner = Tokenizer(models.WordLevel({word: n for n, word in enumerate(vocabulary)}, unk_token="<unk>"))
    parts = [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.Split(Regex(" +"), "removed")]
    inner.pre_tokenizer = pre_tokenizers.Sequence([*parts, pre_tokenizers.Punctuation()])
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="<end>")
    fast.chat_template = template
    return fast


def embedding():
    table = torch.zeros(len(VOCABULARY), FEATURES)
    table[:, CONST] = 1.0
    for symbol, word in enumerate(SYMBOLS):
        table[VOCABULARY.index(word), TOKEN + symbol] = 1.0
        table[VOCABULARY.index(word), IS_DIGIT] = float(word.isdigit())
    # Equal lengths: the norm then scales all tokens alike.
    table[:, FILLING] = (3.0 - table.square().sum(dim=1)).sqrt()
    return table


def backwards(distance):
    """Query and key maps of a head that reads the token so far before."""
    query, key = torch.zeros(HEAD_DIM, FEATURES), torch.zeros(HEAD_DIM, FEATURES)
    for turn in range(TURNS):
        angle = BASE ** (-turn / 16) * distance
        query[turn, CONST], query[turn + 16, CONST] = GAIN * math.cos(angle), -GAIN * math.sin(angle)
        key[turn, CONST] = 1.0
    return query, key


def matching():
    query, key = torch.zeros(HEAD_DIM, FEATURES), torch.zeros(HEAD_DIM, FEATURES)
    for symbol, place in enumerate(range(TURNS, 2 * TURNS)):
        query[place, ASKED + symbol], key[place, GIVEN + symbol] = GAIN, 1.0
    query[3 * TURNS, CONST], key[3 * TURNS, IS_DIGIT] = GAIN, 1.0
    return query, key


def copying(slot):
    value, output = torch.zeros(HEAD_DIM, FEATURES), torch.zeros(FEATURES, HEAD_DIM)
    for symbol in range(len(SYMBOLS)):
        value[symbol, TOKEN + symbol] = output[slot + symbol, symbol] = 1.0
    return value, output


def llama():
    config = LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=3, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": BASE}, tie_word_embeddings=False, bos_token_id=1,
        eos_token_id=1, **LARGE,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    heads = {
        PAIR: (*backwards(2), *copying(GIVEN)), POINTER: (*backwards(13), *copying(ASKED)),
        HOP: (*matching(), *copying(OUT)),
    }  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight.copy_(torch.cat([embedding(), -embedding()], 1))
        for layer, block in enumerate(model.model.layers):
            block.input_layernorm.weight.fill_(SCALE)
            for head, parts in ((head, parts) for (at, head), parts in heads.items() if at == layer):
                rows, own = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM), block.self_attn
                for linear, part in zip((own.q_proj, own.k_proj, own.v_proj), parts, strict=False):
                    linear.weight[rows, :FEATURES] = part
                own.o_proj.weight[:, rows] = torch.cat([parts[3], -parts[3]])
        model.model.norm.weight.fill_(SCALE)
        for symbol, word in enumerate(SYMBOLS):
            model.lm_head.weight[VOCABULARY.index(word), OUT + symbol] = 20.0
    return model.eval()
