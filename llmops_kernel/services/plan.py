"""Plans a training before it is run: its config, the model's `config.json` and the hardware."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any, Final

from llmops_kernel.config.less_memory import changed, divisors, micro_batch_sizes
from llmops_kernel.config.models.section import AnyTemplate
from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading import model_folder
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.config.reading.templates import load_cluster_template
from llmops_kernel.errors import ConfigError, MissingDependencyError, ModelError
from llmops_kernel.kinds.reading import ConfigLike, combined, from_text, load
from llmops_kernel.kinds.registry import is_registered, kind_named
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.planner.architecture import Architecture
from llmops_kernel.planner.learning import PastRun
from llmops_kernel.planner.memory import memory
from llmops_kernel.planner.plan import Plan, plan
from llmops_kernel.services.backend import current
from llmops_kernel.services.models import prepare_model
from llmops_kernel.services.plan_inputs import (
    Guess,
    Machine,
    hardware_of,
    learned_of,
    machine_of,
    past_runs,
    planned_setup,
    speed_assumptions,
)
from llmops_kernel.services.scoring.model import with_start
from llmops_kernel.store.files import find
from llmops_kernel.store.paths import cache
from llmops_kernel.views import format as fmt


@dataclass(frozen=True)
class Planned:
    """The plan of one config, or of one with changes."""

    name: str
    plan: Plan
    traced: Traced | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan's plain values, with what was traced."""
        traced = None if self.traced is None else asdict(self.traced)
        return {"name": self.name, **self.plan.to_dict(), "traced": traced}


@dataclass(frozen=True)
class Traced:
    """Bytes of a step of one worker with `ddp`, planned and traced on tensors without memory."""

    planned: float
    traced: float
    reserved: float
    """What PyTorch's allocator for GPUs would reserve for the traced step."""

    @property
    def difference(self) -> float:
        """Return by what share the plan is above (positive) or below the trace."""
        return self.planned / self.traced - 1


@dataclass(frozen=True)
class Planning:
    """Plans several variants of configs; the template and each config.json are read once."""

    cluster: str | Path = "local"
    guess: Guess = field(default_factory=Guess)
    workspace: Path | str | None = None
    _architectures: dict[tuple[str, str | None, Path], Architecture] = field(default_factory=dict)

    @cached_property
    def template(self) -> AnyTemplate:
        return load_cluster_template(self.cluster)

    @cached_property
    def past(self) -> list[PastRun]:
        return past_runs(current().store)

    def plan(self, config: ConfigLike, overrides: Overrides = (), *, name: str = "") -> Planned:
        """Return the plan of a config. Raises ConfigError with all its mistakes, ModelError."""
        loaded, root = _loaded(config, overrides, self.workspace)
        key = (loaded.model.id, loaded.model.revision, root)
        if key not in self._architectures:
            self._architectures[key] = architecture_of(loaded, root, self.guess.model_config)
        usual = str(config) if isinstance(config, str | Path) else loaded.name
        architecture = self._architectures[key]
        planned = _plan(loaded, architecture, self.template, self.guess, self.past)
        return Planned(name or usual, planned)


def plan_config(
    config: ConfigLike,
    overrides: Overrides = (),
    *,
    cluster: str | Path = "local",
    guess: Guess | None = None,
    workspace: Path | str | None = None,
) -> Planned:
    """Return the plan of a training config on the hardware of a cluster template.

    Raises ConfigError with all mistakes of the config or the template, ModelError.
    """
    return Planning(cluster, guess or Guess(), workspace).plan(config, overrides)


def _loaded(
    config: ConfigLike, overrides: Overrides, workspace: Path | str | None
) -> tuple[TrainingConfig, Path]:
    """Return a training config, and the folder that its paths start in. Raises ConfigError."""
    path = Path(config) if isinstance(config, str | Path) else None
    root = Path(workspace) if workspace else path.resolve().parent if path else Path.cwd()
    loaded = load(config, combined(overrides, {}), workspace=root)
    if not isinstance(loaded, TrainingConfig):
        raise _no_training(str(path or "this config"))
    return with_start(loaded, current().store), root


def _no_training(name: str) -> ConfigError:
    return ConfigError(
        f"{name} is not a training config", remedy="give a config such as lora.train.yaml"
    )


def plan_text(text: str, kind: str, *, name: str, cluster: str | Path, workspace: Path) -> Planned:
    """Return the plan of a text that need not be saved; `name` is what messages call it.

    Raises ConfigError with all mistakes, ModelError.
    """
    if not is_registered(kind):
        raise _no_training(name)
    config = from_text(kind_named(kind), text, name=name, workspace=workspace)
    return Planning(cluster, workspace=workspace).plan(config, name=name)


def plan_grid(
    config: ConfigLike,
    variations: Mapping[str, Sequence[Any]],
    *,
    cluster: str | Path = "local",
    guess: Guess | None = None,
    workspace: Path | str | None = None,
) -> list[Planned]:
    """Return the plan of each combination of values, such as `{"parallelism.strategy": [...]}`.

    A combination that the config's rules refuse is left out, unless all are. Raises ConfigError.
    """
    planning = Planning(cluster, guess or Guess(), workspace)
    plans: list[Planned] = []
    refused: ConfigError | None = None
    for values in product(*variations.values()):
        changes = [f"{key}={value}" for key, value in zip(variations, values, strict=True)]
        try:
            plans.append(planning.plan(config, changes, name=_short(changes)))
        except ConfigError as error:
            refused = error
    if refused is not None and not plans:
        raise refused
    return plans


def plans(
    config: ConfigLike,
    overrides: Sequence[str],
    what_if: Sequence[Sequence[str]] = (),
    *,
    with_fastest: bool = False,
    with_trace: bool = False,
    cluster: str | Path = "local",
    guess: Guess | None = None,
    workspace: Path | str | None = None,
) -> list[Planned]:
    """Return the plan of a config, then that with each of several groups of changes.

    `with_fastest` adds the fastest of common settings that fit; `with_trace` gives the first a
    traced step beside it. Raises ConfigError, ModelError, MissingDependencyError.
    """
    planning = Planning(cluster, guess or Guess(), workspace)

    def planned(changes: Sequence[str], name: str) -> Planned:
        return planning.plan(config, [*overrides, *changes], name=name)

    first = planned((), "as it is")
    if with_trace:
        dtype = first.plan.setup.dtype
        trace = traced(config, overrides, dtype=dtype, guess=guess, workspace=workspace)
        first = replace(first, traced=trace)
    all_plans = [first]
    all_plans += [planned(changes, _short(changes)) for changes in what_if]
    if with_fastest:
        best = fastest(_candidates(all_plans[0], planned))
        if best is not None:
            all_plans.append(best)
    return all_plans


def _candidates(
    first: Planned, planned: Callable[[Sequence[str], str], Planned]
) -> Iterator[Planned]:
    """Yield plans of strategies with and without checkpointing and offloading, at the largest
    micro batch that fits and divides the global batch.
    """
    setup = first.plan.setup
    rows = setup.micro_batch_size * setup.gradient_accumulation_steps
    for strategy, checkpoints, offloads in product(_STRATEGIES, _SWITCH, _SWITCH):
        changes = [
            f"parallelism.strategy={strategy}",
            f"parallelism.gradient_checkpointing={checkpoints}",
            f"parallelism.offload_optimizer={offloads}",
        ]
        try:
            # The smallest micro batch is always allowed.
            smallest = planned([*changes, "training.micro_batch_size=1"], "")
        except ConfigError:
            continue
        largest = smallest.plan.largest_micro_batch or 0
        size = max((size for size in divisors(rows) if size <= largest), default=0)
        if size:
            changes.append(f"training.micro_batch_size={size}")
            yield planned(changes, f"fastest: {_short(changes)}")


def _short(changes: Sequence[str]) -> str:
    """Return `strategy=zero3, micro_batch_size=4`; switches that are off are left out."""
    pairs = [change.partition("=") for change in changes]
    return ", ".join(
        f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs if value != "false"
    )


_STRATEGIES: Final = ("ddp", "zero1", "zero2", "zero3", "fsdp")
_SWITCH: Final = ("false", "true")


def fastest(plans: Iterable[Planned]) -> Planned | None:
    """Return the plan that fits and makes most tokens a second; None where none is known to."""
    speeds = [(one.plan.speed, one) for one in plans if one.plan.fits]
    known = [(speed.tokens_per_second, one) for speed, one in speeds if speed is not None]
    return max(known, key=lambda pair: pair[0], default=(0.0, None))[1]


def _plan(
    config: TrainingConfig,
    architecture: Architecture,
    template: AnyTemplate,
    guess: Guess,
    past: Sequence[PastRun],
) -> Plan:
    if config.training.micro_batch_size == "auto":
        smallest = _plan(changed(config, {_MICRO: 1}), architecture, template, guess, past)
        largest = smallest.largest_micro_batch or 1
        size = max(size for size in micro_batch_sizes(config) if size <= largest)
        known = "the largest that fits" if smallest.largest_micro_batch else "none is known to fit"
        chosen = _plan(changed(config, {_MICRO: size}), architecture, template, guess, past)
        said = f"micro_batch_size=auto is {size}: {known}; the run tries it out"
        return replace(chosen, assumptions=(*chosen.assumptions, said))
    assumptions: list[str] = []
    machine = machine_of(template, config, guess.device or "", assumptions)
    setup = planned_setup(config, architecture, machine, guess, assumptions)
    tf32 = config.performance.tf32 and setup.dtype == "float32"
    hardware = hardware_of(machine, setup, guess.network, assumptions, tf32=tf32)
    learned = learned_of(past, machine, setup, hardware.rates, tf32=tf32)
    host = machine.host
    has_network = bool(guess.network or (host and host.network_bytes_per_second))
    assumptions += speed_assumptions(
        setup, hardware.rates, learned, has_network=has_network, tf32=tf32
    )
    steps = _steps(config, guess)
    return plan(setup, hardware, steps=steps, assumptions=assumptions, learned=learned)


_MICRO: Final = "training.micro_batch_size"


def _steps(config: TrainingConfig, guess: Guess) -> int | None:
    training = config.training
    if training.max_steps is not None or guess.rows is None:
        return training.max_steps
    # As Transformers does: what is left of the rows is a step too, and so of an epoch.
    return ceil(training.num_epochs * ceil(guess.rows / training.global_batch_size))


# --- Before a submission ---


def memory_warning(
    config: TrainingConfig, root: Path, template: AnyTemplate
) -> WarningEvent | None:
    """Return a warning if a training needs more memory than its devices or hosts have.

    None where that is not known: nothing is downloaded or converted to learn it.
    """
    try:
        architecture = architecture_of(config, root, downloads=False)
    except ModelError:
        return None
    planned = _plan(config, architecture, template, Guess(), past_runs(current().store))
    if planned.fits is not False:
        return None
    setup, largest = planned.setup, planned.largest_micro_batch or 0
    size, rows = setup.micro_batch_size, setup.micro_batch_size * setup.gradient_accumulation_steps
    smaller = max((part for part in divisors(rows) if part <= largest), default=0)
    remedy = "`llmops plan FILE --fastest` finds settings that fit"
    return WarningEvent(
        message=f"This training will probably not fit in memory: {_excess(planned)} for micro"
        f" batches of {size} sequences, if they have data.max_length = {setup.length} tokens.",
        remedy=f"training.micro_batch_size={smaller} fits; {remedy}"
        if smaller
        else f"no micro batch fits; {remedy}",
    )


def _excess(planned: Plan) -> str:
    needed, hardware = planned.memory, planned.hardware
    if hardware.memory_bytes is not None and needed.total > hardware.memory_bytes:
        device = f"{fmt.byte_size(hardware.memory_bytes)} ({hardware.name})"
        return f"each worker needs {fmt.byte_size(needed.total)} of {device}"
    host = "unknown" if hardware.host_bytes is None else fmt.byte_size(hardware.host_bytes)
    return f"each node needs {fmt.byte_size(needed.host)} of {host} of host memory"


# --- The second estimate ---

TRACE_S: Final = 600.0
_TRACER: Final = "llmops_kernel.train.measure.traced_step"
"""A string: this process must not import the training stack."""


def traced(
    config: ConfigLike,
    overrides: Overrides = (),
    *,
    dtype: str = "float32",
    guess: Guess | None = None,
    workspace: Path | str | None = None,
    timeout_s: float = TRACE_S,
) -> Traced:
    """Run two steps on tensors without memory, in another process, and compare its plan with them.

    What is traced is one worker with `ddp` in `dtype`, plain texts, and a label at each token.
    Raises ConfigError, ModelError, MissingDependencyError.
    """
    guess = guess or Guess()
    loaded, root = _loaded(config, overrides, workspace)
    alone = {"strategy": "ddp", "num_workers": 1}
    alone["gradient_checkpointing"] = loaded.parallelism.gradient_checkpointing
    passes = min(2, loaded.gradient_accumulation_steps)
    values = loaded.model_dump(mode="json")
    values["parallelism"] = alone
    values["model"]["dtype"] = dtype
    if loaded.model.attention.startswith("flash"):
        values["model"]["attention"] = "auto"  # Its kernels need a GPU.
    values["training"]["global_batch_size"] = passes * loaded.micro_batch_size
    single = TrainingConfig.model_validate(values)
    model = _values_of_model(loaded, root, guess.model_config)
    job = json.dumps({"config": values, "model_config": model})
    setup = planned_setup(single, _architecture(model), Machine(), guess, [])
    setup = replace(setup, logits="all", optimizer="adamw", on_gpu=False, is_padded=True)
    planned = memory(setup)
    answer = _run_tracer(job, timeout_s)
    return Traced(planned.total, answer["total"], answer["reserved"])


def _run_tracer(job: str, timeout_s: float) -> dict[str, float]:
    if find_spec("torch") is None:
        raise MissingDependencyError(
            "A step is traced with PyTorch, which is not installed here.",
            remedy="pip install 'llmops-kernel[train]', or plan without --trace",
        )
    try:
        done = subprocess.run(
            [sys.executable, "-m", _TRACER],
            input=job,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"Two steps were not traced within {timeout_s:.0f} s.", remedy="plan without --trace"
        ) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ModelError(f"The step was not traced: {lines[-1]}", remedy="plan without --trace")
    answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


# --- The model ---


def architecture_of(
    config: TrainingConfig, root: Path, file: Path | str | None = None, *, downloads: bool = True
) -> Architecture:
    """Return the sizes of a config's model. Raises ModelError.

    Without `downloads` only what this machine has is read.
    """
    return _architecture(_values_of_model(config, root, file, downloads=downloads))


def _architecture(values: Mapping[str, Any]) -> Architecture:
    architecture = Architecture.from_config(values)
    if architecture is None:
        family = values.get("model_type", "without a model_type")
        raise ModelError(
            f"The planner does not know models of the family {family}"
            " (or a size is missing in config.json).",
            remedy="plan a like-sized Llama or Qwen by --model-config, or submit with a small"
            " micro_batch_size and read the peak memory",
        )
    return architecture


def _values_of_model(
    config: TrainingConfig, root: Path, file: Path | str | None, *, downloads: bool = True
) -> dict[str, Any]:
    if file is not None:
        return _read(Path(file))
    return _read(_config_file(config.model.id, config.model.revision, root, downloads=downloads))


def _config_file(model: str, revision: str | None, root: Path, *, downloads: bool) -> Path:
    """Return the config.json of a model, or of the base model of an adapter. Raises ModelError."""
    if model in CATALOGUE:
        if downloads:
            prepare_model(model)
        return cache() / "models" / model / "config.json"
    folder = find(model, (root,))
    if folder is None:
        return _of_hub(model, revision, downloads=downloads)
    if model_folder.is_adapter(folder):
        for name, base_revision in model_folder.base_names(folder):
            return _config_file(name, base_revision, root, downloads=downloads)
    return folder / "config.json"


def _of_hub(model: str, revision: str | None, *, downloads: bool) -> Path:
    try:
        from huggingface_hub import hf_hub_download

        only_here = not downloads
        file = hf_hub_download(model, "config.json", revision=revision, local_files_only=only_here)
        return Path(file)
    except Exception as error:  # The hub's errors have no common class.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"config.json of {model} is neither on this machine nor was it downloaded: {reason}",
            remedy="give the model's config.json by --model-config FILE",
        ) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{file} cannot be read as a model's config: {error}",
            remedy="give the model's config.json by --model-config FILE",
        ) from error
    if not isinstance(values, dict):
        raise ModelError(f"{file} is no JSON object.", remedy="give the model's config.json")
    return values
