"""Short chat templates of our own, each with one peculiarity of a model family's, and tokenizers.

They are no copies: what they share with the family's own is how an answer begins and ends, and what
becomes of earlier answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TURNS = "{% for m in messages %}"
_END = "{% endfor %}"
_THINKING = (
    "{% set c = m.content %}"
    "{% if '</think>' in c %}{% set r = c.split('</think>')[0].split('<think>')[-1].strip() %}"
    "{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% else %}{% set r = '' %}{% endif %}"
)


@dataclass(frozen=True)
class Style:
    """A template with the tokens that its tokenizer has for it."""

    template: str
    tokens: tuple[str, ...]
    """Special ones, apart from `eos`."""
    eos: str
    end: str | None
    """The token with which an answer ends; None where the template writes none."""


STYLES = {
    "chatml": Style(
        _TURNS
        + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        + _END
        + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        ("<|im_start|>", "<|im_end|>"),
        "<|endoftext|>",
        "<|im_end|>",
    ),
    "gemma": Style(
        "{{ bos_token }}"
        + _TURNS
        + "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
        "{{ m.content | trim }}<end_of_turn>\n"
        + _END
        + "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        ("<bos>", "<start_of_turn>", "<end_of_turn>"),
        "<eos>",
        "<end_of_turn>",
    ),
    "glm": Style(
        "[gMASK]<sop>"
        + _TURNS
        + "<|{{ m.role }}|>\n{{ m.content }}"
        + _END
        + "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"),
        "<|endoftext|>",
        "<|user|>",
    ),
    "no end": Style(
        _TURNS
        + "{{ m.role | upper }}: {{ m.content }}\n"
        + _END
        + "{% if add_generation_prompt %}ASSISTANT: {% endif %}",
        (),
        "</s>",
        None,
    ),
    "phi3": Style(
        _TURNS
        + "<|{{ m.role }}|>\n{{ m.content }}<|end|>\n"
        + _END
        + "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}",
        ("<|user|>", "<|assistant|>", "<|end|>"),
        "<|endoftext|>",
        "<|end|>",
    ),
    "deepseek": Style(
        _TURNS + "{% if m.role == 'user' %}<|User|>{{ m.content }}{% else %}"
        "<|Assistant|>{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endif %}"
        + _END
        + "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}",
        ("<|User|>", "<|Assistant|>", "<think>", "</think>"),
        "<|eos|>",
        "<|eos|>",
    ),
    "qwen3": Style(
        _TURNS + _THINKING + "<|im_start|>{{ m.role }}\n"
        "{% if loop.last and m.role == 'assistant' %}<think>\n{{ r }}\n</think>\n\n{% endif %}"
        "{{ c }}<|im_end|>\n"
        + _END
        + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        ("<|im_start|>", "<|im_end|>", "<think>", "</think>"),
        "<|im_end|>",
        "<|im_end|>",
    ),
    "nemotron": Style(
        _TURNS + _THINKING + "<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{% if r %}<think>\n{{ r }}\n</think>\n{% else %}<think></think>{% endif %}{% endif %}"
        "{{ c | trim }}<|im_end|>\n"
        + _END
        + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
        ("<|im_start|>", "<|im_end|>", "<think>", "</think>"),
        "<|im_end|>",
        "<|im_end|>",
    ),
    "harmony": Style(
        _TURNS + "{% if m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>"
        "{{ m.content }}"
        "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
        "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}"
        + _END
        + "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        ("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
        "<|return|>",
        "<|return|>",
    ),
    "marked": Style(
        _TURNS + "{% if m.role == 'assistant' %}[A]{% generation %}{{ m.content }}<|im_end|>"
        "{% endgeneration %}{% else %}[U]{{ m.content }}{% endif %}\n"
        + _END
        + "{% if add_generation_prompt %}[A]{% endif %}",
        ("<|im_end|>", "[U]", "[A]"),
        "<|im_end|>",
        "<|im_end|>",
    ),
}


def tokenizer_of(style: Style, *, bos: str | None = None) -> Any:
    """Return a tokenizer with one token a byte, and those of the style."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = dict.fromkeys(("<|pad|>", style.eos, *style.tokens))
    core.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in special])
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<|pad|>", eos_token=style.eos, bos_token=bos
    )
    made.chat_template = style.template
    return made


def save_tiny(folder: Path, style: Style, *, bos: str | None = None, **settings: Any) -> Any:
    """Write a model of `writer`, with the style's tokenizer; return the tokenizer.

    `settings` are of its generation config.
    """
    tokenizer = tokenizer_of(style, bos=bos)
    model = writer(tokenizer)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def writer(tokenizer: Any) -> Any:
    """Return a tiny model whose next token depends on the last one alone, see `follows`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    size = len(tokenizer)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=size + size % 2,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=256,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.model.norm.weight.fill_(1.0)
        # The hidden state is the last token, one dimension for each; attention adds nothing.
        model.model.embed_tokens.weight[:, :size] = torch.eye(size)
    return model


def follows(model: Any, tokenizer: Any, tokens: Sequence[str], *, rival: str = "~") -> None:
    """Let the model write each of the tokens after the one before it, and the last for ever.

    No token may be there twice. `rival` is nearly as probable at each place: a penalty on tokens
    that were there before makes it win.
    """
    import torch

    ids = tokenizer.convert_tokens_to_ids(list(tokens))
    assert None not in ids
    assert len(set(ids)) == len(ids)
    with torch.no_grad():
        head = model.lm_head.weight
        head.zero_()
        head[tokenizer.convert_tokens_to_ids(rival)] = 0.9
        for one, following in zip(ids, [*ids[1:], ids[-1]], strict=True):
            head[following, one] = 1.0
