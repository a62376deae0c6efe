"""Ways to bring a model's weights from the page cache to a GPU, each in a process of its own.

    python -m tests.benchmarks.kept.gpu --gigabytes 0.27 6 --rounds 5

A process is forked from one that has imported the libraries, as a run's worker is, and initialises
CUDA before the time is taken. The files are in the page cache. The ways:

read         `from_pretrained` on the host, then `model.to("cuda")`: a run whose model is not kept
direct       `from_pretrained(device_map="cuda")`
mapped       `torch.load(mmap=True)`, then `model.to("cuda")`: as ours until 2026-11-26
registered   the mapped file is page-locked (`cudaHostRegister`), then `model.to("cuda")`
prefaulted   mapped, all pages at once (`MADV_POPULATE_READ`), then `model.to("cuda")`
staged       mapped; threads fill two page-locked buffers in turn (`train.model.to_gpu`): as ours
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import mmap
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_PAGE = mmap.PAGESIZE
_READ_ONLY = 0x08  # cudaHostRegisterReadOnly
_POPULATE_READ = 22  # MADV_POPULATE_READ, Linux 5.14
_THREADS = 8
_MODULES = (
    "accelerate",
    "safetensors.torch",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
)
"""What the fork server of a run's worker has imported."""


def make(folder: Path, gigabytes: float) -> None:
    """Write a Llama of about that size with random bf16 weights, as files and as a kept model."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    width = 576 if gigabytes < 1 else 3072
    layer = 12 * width * width * 2 / 1e9
    count = max(1, round((gigabytes - 49152 * width * 2 / 1e9) / layer))
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=round(8 * width / 3 / 64) * 64,
        num_hidden_layers=count,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        vocab_size=49152,
        tie_word_embeddings=True,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    model.to("cpu").save_pretrained(folder / "files")
    torch.set_default_dtype(torch.float32)
    loaded = AutoModelForCausalLM.from_pretrained(folder / "files", dtype=torch.bfloat16)
    torch.serialization.set_crc32_options(False)
    torch.save(loaded, folder / "kept.pt")


def read(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder / "files", dtype=torch.bfloat16)
    return model.to("cuda")


def direct(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder / "files", dtype=torch.bfloat16, device_map="cuda"
    )


def mapped(folder: Path) -> Any:
    return _mapped(folder, mmap.MAP_PRIVATE).to("cuda")


def registered(folder: Path) -> Any:
    import torch

    model = _mapped(folder, mmap.MAP_SHARED)
    begin, size = _span(model)
    cudart = torch.cuda.cudart()
    code = cudart.cudaHostRegister(begin, size, _READ_ONLY)
    if int(code) != 0:
        raise RuntimeError(f"cudaHostRegister: {code}")
    moved = model.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    cudart.cudaHostUnregister(begin)
    return moved


def prefaulted(folder: Path) -> Any:
    """The kernel maps all pages at once, by eight threads."""
    import torch

    model = _mapped(folder, mmap.MAP_PRIVATE)
    begin, size = _span(model)
    libc = ctypes.CDLL(None, use_errno=True)
    part = -(-size // _THREADS // _PAGE) * _PAGE
    with ThreadPoolExecutor(_THREADS) as pool:
        codes = [
            pool.submit(
                libc.madvise,
                ctypes.c_void_p(begin + at),
                ctypes.c_size_t(min(part, size - at)),
                _POPULATE_READ,
            )
            for at in range(0, size, part)
        ]
    if any(each.result() for each in codes):
        raise OSError(ctypes.get_errno(), "madvise")
    moved = model.to("cuda")
    torch.cuda.synchronize()
    return moved


def staged(folder: Path) -> Any:
    import torch

    from llmops_kernel.train.model.kept import move

    model = _mapped(folder, mmap.MAP_PRIVATE)
    move(model, torch.device("cuda"))
    return model


def _span(model: Any) -> tuple[int, int]:
    """Whole pages around each weight: the archive aligns weights to 64 bytes only."""
    stores = [one.untyped_storage() for one in [*model.parameters(), *model.buffers()]]
    begin = min(one.data_ptr() for one in stores) // _PAGE * _PAGE
    end = -(-max(one.data_ptr() + one.nbytes() for one in stores) // _PAGE) * _PAGE
    return begin, end - begin


def _mapped(folder: Path, flags: int) -> Any:
    import torch

    with torch.serialization.set_default_mmap_options(flags):
        return torch.load(folder / "kept.pt", mmap=True, weights_only=False)


WAYS: dict[str, Callable[[Path], Any]] = {
    each.__name__: each for each in (read, direct, mapped, registered, prefaulted, staged)
}


def once(way: str, folder: Path) -> tuple[float, float, str]:
    """Return the seconds of the way, those of CUDA's start before it, and an error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, json.dumps(_measured(way, folder)).encode())
        except Exception as error:
            os.write(writing, json.dumps((0, 0, f"{type(error).__name__}: {error}"[:300])).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    took_s, cuda_s, why = json.loads(text or '[0, 0, "the process was killed"]')
    return took_s, cuda_s, why


def _measured(way: str, folder: Path) -> tuple[float, float, str]:
    import torch

    begun_s = time.perf_counter()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    started_s = time.perf_counter()
    model = WAYS[way](folder)
    torch.cuda.synchronize()
    done_s = time.perf_counter()
    del model
    return done_s - started_s, started_s - begun_s, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.27, 6.0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where the models are written")
    asked = parser.parse_args()
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    for name in _MODULES:
        importlib.import_module(name)

    for size in asked.gigabytes:
        folder = Path(tempfile.mkdtemp(prefix="kept-gpu-", dir=asked.folder))
        try:
            _forked(make, folder, size)
            measure(folder, asked.rounds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _forked(function: Callable[..., object], *args: object) -> None:
    """CUDA must not be initialised in the process that the others are forked from."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function(*args)
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit("the model could not be made")


def measure(folder: Path, rounds: int) -> None:
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    cuda: list[float] = []
    for _ in range(rounds):
        for way in WAYS:
            seconds, cuda_s, error = once(way, folder)
            if error:
                print(f"{way}: {error}", flush=True)
                continue
            took[way].append(seconds)
            cuda.append(cuda_s)
    size = (folder / "kept.pt").stat().st_size / 1e9
    print(f"{size:.2f} GB; CUDA's start before it: {statistics.median(cuda):.2f} s")
    base = statistics.median(took["read"]) if took["read"] else None
    for way, times in took.items():
        if not times:
            continue
        middle = statistics.median(times)
        ratio = f"{middle / base:.2f} of read" if base else ""
        spread = f"({min(times):.3f} - {max(times):.3f})"
        print(f"{way:<11}{middle:7.3f} s {spread}  {size / middle:5.1f} GB/s  {ratio}", flush=True)


if __name__ == "__main__":
    main()
