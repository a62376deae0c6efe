"""Variables of the user's environment that a local cluster, and so each job, inherits.

An allow-list: a process of JupyterHub, of a CI system or of a shell holds tokens of its own
(JUPYTERHUB_API_TOKEN, JPY_API_TOKEN, CONFIGPROXY_AUTH_TOKEN, GITHUB_TOKEN, database passwords), and
a job runs code of others: models, data sets, packages. A list of names to leave out would never
be complete. Credentials that a training itself uses are passed, each by its whole name: for models
and data, object stores and trackers. A template names more in `inherit_env`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

_SYSTEM = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "HOSTNAME", "TERM", "TZ"),
    *("TMPDIR", "TMP", "TEMP", "LANG", "LANGUAGE", "LC_*", "XDG_*"),
)
_PROGRAMS = (
    # Interpreters, environment modules and what compiles kernels at run time.
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "PIP_*", "UV_*"),
    "PYENV_ROOT",
    *("LD_*", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "PKG_CONFIG_PATH"),
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "MAX_JOBS", "CUDAHOSTCXX", "NVCC_*", "NINJA_*"),
    *("JAVA_HOME", "CLASSPATH"),
)
_NUMERICS = (
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NVPL_*", "NUMEXPR_*"),
    *("ONEDNN_*", "DNNL_*", "ATEN_*"),
    *("MALLOC_*", "GLIBC_*"),
)
_DEVICES = (
    *("CUDA_*", "CUBLAS_*", "CUDNN_*", "NVIDIA_*", "NVTE_*", "NCCL_*", "GLOO_*", "UCX_*", "FI_*"),
    *("ROCM_*", "ROCR_*", "HIP_*", "HSA_*", "MIOPEN_*", "RCCL_*", "GPU_*", "ZE_*", "XLA_*"),
    *("TPU_*", "NEURON_*", "OMPI_*", "IBV_*"),
)
_LIBRARIES = (
    *("HF_*", "HUGGINGFACE_*", "HUGGING_FACE_*", "TRANSFORMERS_*", "DATASETS_*", "TOKENIZERS_*"),
    *("SENTENCE_TRANSFORMERS_*", "SAFETENSORS_*", "ACCELERATE_*", "PEFT_*", "DIFFUSERS_*"),
    *("TORCH_*", "TORCHINDUCTOR_*", "TORCHELASTIC_*", "PYTORCH_*", "KINETO_*", "TRITON_*"),
    *("DS_*", "DEEPSPEED_*", "BNB_*", "BITSANDBYTES_*", "FLASH_*", "FLASHINFER_*", "VLLM_*"),
    *("PL_*", "LIGHTNING_*", "ARROW_*", "FSSPEC_*", "GRPC_*", "TQDM_*", "USE_TORCH", "USE_TF"),
    # TensorFlow's, not Terraform's, which begin alike (TF_VAR_*, TF_TOKEN_*, TF_CLI_*).
    *("TF_CPP_*", "TF_ENABLE_*", "TF_FORCE_*", "TF_GPU_*", "TF_NUM_*", "TF_USE_*", "TF_XLA_*"),
    *("TF_CONFIG", "TF_CUDNN_*", "TF_DETERMINISTIC_OPS"),
    *("NLTK_*", "JAX_*", "NUMBA_*", "MPLCONFIGDIR", "PROTOCOL_BUFFERS_*"),
)
_STORES = (
    *("AWS_*", "AZURE_STORAGE_*", "AZURE_CLIENT_*", "AZURE_TENANT_ID", "AZURE_SUBSCRIPTION_ID"),
    *(
        "AZURE_AUTHORITY_HOST",
        "AZURE_FEDERATED_TOKEN_FILE",
        "GOOGLE_*",
        "GCS_*",
        "CLOUDSDK_*",
        "S3_*",
        "BOTO_*",
        "MINIO_*",
    ),
    *("HADOOP_*", "HDFS_*", "LIBHDFS*", "KRB5*", "GIT_SSL_*"),
)
_TRACKERS = (
    *("WANDB_*", "COMET_*", "MLFLOW_*", "TRACKIO_*", "CLEARML_*", "NEPTUNE_*", "SWANLAB_*"),
    *("TENSORBOARD_*", "DVCLIVE_*", "DAGSHUB_*", "DATABRICKS_*", "AIM_*"),
)
_NETWORK = (
    *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "DO_NOT_TRACK"),
)
CREDENTIALS = (
    *("HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN"),
    "HUGGINGFACE_HUB_TOKEN",
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_*"),
    *("AZURE_STORAGE_*", "AZURE_CLIENT_*", "AZURE_FEDERATED_TOKEN_FILE"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"),
    *("S3_ACCESS_KEY*", "S3_SECRET_*", "MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"),
    *("HADOOP_TOKEN_FILE_LOCATION", "HADOOP_CREDSTORE_PASSWORD"),
    *("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "COMET_API_KEY", "NEPTUNE_API_TOKEN"),
    *("SWANLAB_API_KEY", "CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY"),
    *("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "DAGSHUB_USER_TOKEN"),
    *("DATABRICKS_TOKEN", "DATABRICKS_CLIENT_SECRET"),
    "LLMOPS_*",
)
"""Credentials of a training for models, data, stores and trackers."""

_SECRET = re.compile(
    r"(?:^|_)(?:TOKENS?|SECRETS?|PASS|PASSWORDS?|PASSWD|PASSPHRASE|PWD|PAT|CREDENTIALS?|CREDS|AUTH"
    r"|(?:API|ACCESS|SECRET|PRIVATE|ACCOUNT|AUTH|SIGNING|ENCRYPTION)_?KEYS?)(?:_|$)",
    re.IGNORECASE,
)
"""Words in the name of a variable that holds a secret, whatever library it is of."""
INHERITED = (
    *_SYSTEM,
    *_PROGRAMS,
    *_NUMERICS,
    *_DEVICES,
    *_LIBRARIES,
    *_STORES,
    *_TRACKERS,
    *_NETWORK,
    "LLMOPS_*",
)
"""Names, and beginnings of names with a `*`."""

# The template alone describes a head: RAY_ADDRESS, RAY_AUTH_TOKEN and the like of the shell (or of
# a job that this runs in) are about another Ray, as is the fork server's folder. Without byte code
# every process of every run would compile our package again.
_NEVER = ("RAY_*", "LLMOPS_WARM*", "PYTHONDONTWRITEBYTECODE")


def inherited(user: Mapping[str, str], patterns: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of `user` that a cluster gets; `patterns` are more names or patterns."""
    patterns = tuple(patterns)
    return {
        name: value
        for name, value in user.items()
        if not _matches(name, _NEVER) and (_matches(name, patterns) or _is_passed(name))
    }


def _is_passed(name: str) -> bool:
    """Return whether a variable is passed. A secret must be named whole in `CREDENTIALS`.

    A library's prefix lets too much through, such as UV_PUBLISH_TOKEN or VLLM_API_KEY.
    """
    if _SECRET.search(name):
        return _matches(name, CREDENTIALS)
    return _matches(name, INHERITED)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
