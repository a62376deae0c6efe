"""The driver of a script's run: `python -m llmops_kernel.train.script.entrypoint`."""

from __future__ import annotations

import sys
from pathlib import Path

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.driver.ray_job import restart_cold
from llmops_kernel.store.record import RunSpec
from llmops_kernel.warm.for_jobs import reads_of_server, start_report
from llmops_kernel.warm.plan import is_of_interpreter


def main() -> None:
    spec = RunSpec.of_this_job()
    print(f"run {spec.run_id}, attempt {spec.attempt}", flush=True)
    if spec.has_packages:
        from llmops_kernel.driver.packages import prepare  # 7 ms that most runs need not wait for.

        prepare(spec)
    config = ScriptConfig.model_validate(spec.config)
    sys.exit(_drive(spec, config))


def _drive(spec: RunSpec, config: ScriptConfig) -> int:
    if why := _why_cold(config):
        restart_cold(spec, why, variables=config.env)
    if config.workers is None:
        # Imports no Ray and starts no thread before it forks.
        from llmops_kernel.train.script.once import OnceDriver

        return OnceDriver(spec, config, is_warm=start_report()[0]).run()
    from llmops_kernel.train.script.workers import WorkersDriver

    return WorkersDriver(spec, config).run()


def _why_cold(config: ScriptConfig) -> str:
    """Return why this process cannot run the script as a new interpreter would; mostly empty."""
    from llmops_kernel.train.script import fresh

    if start_report()[0]:
        return fresh.why_cold(config, Path.cwd(), reads=reads_of_server)
    late = [name for name in fresh.changed_by(config.env) if is_of_interpreter(name)]
    return start_report()[1] if set(late) - {"PYTHONPATH"} else ""


if __name__ == "__main__":
    main()
