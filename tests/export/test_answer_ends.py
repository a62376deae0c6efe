"""What ends an answer is written where each server of an exported model looks for it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chat_templates import STYLES, follows, save_tiny, tokenizer_of, writer
from tests.export.conftest import Store


def test_a_full_model_lists_the_end_of_the_turn(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tokenizer = save_tiny(folder, STYLES["gemma"], repetition_penalty=1.5)
    model = writer(tokenizer)
    follows(model, tokenizer, ["Ċ", *"abc", "<end_of_turn>", "!"])
    model.save_pretrained(folder)
    done = store.export(store.add("full-1", folder, what="model"), tmp_path / "out")
    assert any("4 of 4 greedy answers are unchanged" in note for note in done.notes)
    found = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    ids = tokenizer.convert_tokens_to_ids(["<eos>", "<end_of_turn>"])
    assert found["eos_token_id"] == ids


def test_an_adapter_beside_its_base(store: Store, adapter: Path, tmp_path: Path) -> None:
    run = store.add("adding-1", adapter)
    store.export(run, tmp_path / "out", to="vllm", lora=True)
    found = json.loads((tmp_path / "out" / "adapter" / "generation_config.json").read_text())
    assert found["eos_token_id"] == 257
    assert "--generation-config adapter" in (tmp_path / "out" / "serve.sh").read_text()


def test_gguf_names_the_end_of_the_turn(tmp_path: Path) -> None:
    import gguf

    from llmops_kernel.export.gguf_file import add_tokenizer
    from tests.export.test_gguf import small_tokenizer

    found = {}
    for template in (tokenizer_of(STYLES["chatml"]).chat_template, small_tokenizer().chat_template):
        tokenizer = small_tokenizer()
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
        tokenizer.chat_template = template
        writer = gguf.GGUFWriter(str(tmp_path / "vocabulary.gguf"), "llama")
        add_tokenizer(writer, tokenizer, vocab_size=len(tokenizer))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        fields = gguf.GGUFReader(str(tmp_path / "vocabulary.gguf")).fields
        eot = fields.get("tokenizer.ggml.eot_token_id")
        found[template] = None if eot is None else int(eot.contents())
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert list(found.values()) == [end, None]
