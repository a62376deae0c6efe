"""The page of all environment variables, a sentence each; a test compares it with the code."""

from __future__ import annotations

from docs.generate.markdown import table

YOURS = {
    "LLMOPS_HOME": "Folder of runs, cluster records and packages. Default: your user data folder;"
    " `llmops doctor` shows it.",
    "LLMOPS_CACHE": "Folder of converted models, copies of models from URLs, tokens of training rows"
    " and vLLM's environment. It may be deleted at any time. Default: your user cache folder.",
    "LLMOPS_DEBUG": "`1` prints the traceback of an unexpected error instead of saving it to a file.",
    "LLMOPS_GROUP": "Group of the runs that a process submits, where a submission names none. A"
    " schedule sets it for its notebook.",
    "LLMOPS_PEAK_TFLOPS": "Dense peak of one device in TFLOPS, such as `989.4`, against which MFU is"
    " measured; for devices that are not listed. Set it in the cluster's environment.",
    "LLMOPS_SCORE_ENV": "Folder of a Python environment of your own with vLLM, as in a worker image.",
    "LLMOPS_TRACKERS_PYTHON": "Python with the trackers' packages, where they do not fit beside the"
    " training's. Set it in the cluster's environment.",
    "LLMOPS_CREDENTIALS_TIMEOUT_S": "Seconds that a kubeconfig's credential plug-in may take."
    " Default: 30.",
}
OURS = {
    "LLMOPS_RUN_STORAGE": "Folder or bucket of runs on a cluster's nodes; set `storage.runs` of the"
    " template.",
    "LLMOPS_COPY_OUTPUTS": "Bytes up to which an output is copied home; set `storage.copy_outputs` of"
    " the template.",
    "LLMOPS_NODE_PRICE": "Price with which a node was started; set `price` of the template.",
    "LLMOPS_CLUSTER_DIR": "Temporary folder of a local cluster, by which its processes are known.",
    "LLMOPS_RUN_SPEC": "What a script's processes are told of their run.",
    "LLMOPS_RUN_BOARD": "Folder in which a script's process reads that it should stop.",
    "LLMOPS_PACKAGES": "Packages that a run's config asks for, for its processes.",
    "LLMOPS_DRIVER_BEGAN_S": "Time at which a driver began that was started a second time.",
    "LLMOPS_WARM_DIR": "Folder of a node's fork server; without it nothing starts warm. Set"
    " `warm.enabled` of the template.",
    "LLMOPS_WARM": "In each process that the launcher starts: `warm`, or `cold` and the reason.",
    "LLMOPS_WARM_PID": "The process that `LLMOPS_WARM` is about; a subprocess inherits both.",
    "LLMOPS_WARM_DRIVER": "The launcher of a job's own first process.",
    "LLMOPS_WARM_REFUSE": "In a job's environment: its processes start cold, for this reason.",
    "LLMOPS_WARM_PRELOAD": "Modules that the fork server imports besides its own; set"
    " `warm.preload`.",
    "LLMOPS_WARM_KEEP_BYTES": "Size of a node's kept models; set `warm.keep` of the template.",
}
TESTS = {
    "LLMOPS_TEST_CACHE": "Cache folder that tests share, so that models are converted once.",
    "LLMOPS_TEST_RERUNS": "How often a failed test is run again; CI sets 1.",
    "LLMOPS_TEST_WORKERS": "Number of processes that run quick tests beside each other.",
    "LLMOPS_TEST_PICTURES": "`1` makes browser tests write pictures to `test-artifacts/`.",
    "LLMOPS_WRITE_MATRIX": "`1` makes `tests/train/test_matrix.py` write its tables.",
}


def pages() -> dict[str, str]:
    """Return the page, with the variables that users set first."""
    parts = [
        "# Environment variables",
        "A local cluster inherits `LLMOPS_*` from the shell of `llmops up`. On Kubernetes set them in"
        " `env` of the cluster template.",
        "## For you to set",
        _table(YOURS),
        "## Set by llmops",
        "Do not set these. The sentence says which setting they come from.",
        _table(OURS),
        "## For the tests of this repository",
        _table(TESTS),
    ]
    return {"reference/environment.md": "\n\n".join(parts) + "\n"}


def _table(variables: dict[str, str]) -> str:
    return table(("variable", "meaning"), ((f"`{name}`", text) for name, text in variables.items()))
