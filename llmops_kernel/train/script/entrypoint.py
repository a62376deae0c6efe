"""The driver of a script's run: `python -m llmops_kernel.train.script.entrypoint`."""

from __future__ import annotations

import sys

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.warm.for_jobs import start_report


def main() -> None:
    spec = RunSpec.of_this_job()
    print(f"run {spec.run_id}, attempt {spec.attempt}", flush=True)
    config = ScriptConfig.model_validate(spec.config)
    sys.exit(_drive(spec, config))


def _drive(spec: RunSpec, config: ScriptConfig) -> int:
    if config.workers is None:
        # Imports no Ray and starts no thread before it forks.
        from llmops_kernel.train.script.once import OnceDriver

        return OnceDriver(spec, config, is_warm=start_report()[0]).run()
    from llmops_kernel.train.script.workers import WorkersDriver

    return WorkersDriver(spec, config).run()


if __name__ == "__main__":
    main()
