from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.config.models.section import NodePrice, Price
from llmops_kernel.errors import ClusterStartError
from llmops_kernel.providers.local import launch
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.store import paths
from tests.providers.conftest import head_record

# Ray's, in the worst case: the session's folder and the longest socket name in it.
_SESSION = "session_2026-11-21_04-06-15_189887_4194304"
_SOCKET = "sockets/dash_MetricsHead"
_OF_MULTIPROCESSING = "pymp-abcdefgh/listener-abcdefgh"
_UNIX_SOCKET_PATH_BYTES = 107


def environment(
    tmp_path: Path, user: dict[str, str], template: ClusterTemplate | None = None
) -> dict[str, str]:
    folder = cluster_folder(tmp_path, "lab")
    return launch.environment(
        user,
        record=head_record(tmp_path),
        folder=folder,
        template=template or ClusterTemplate(name="lab"),
        home=tmp_path,
    )


def test_the_users_ray_settings_do_not_reach_the_head(tmp_path: Path) -> None:
    user = {
        "RAY_ADDRESS": "10.0.0.1:6379",
        "RAY_AUTH_TOKEN": "another cluster's",
        "JPY_API_TOKEN": "secret",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "HF_HUB_OFFLINE": "1",
    }
    before = dict(user)
    env = environment(tmp_path, user)
    assert user == before
    assert not {"RAY_ADDRESS", "RAY_AUTH_TOKEN", "JPY_API_TOKEN", "MPLBACKEND"} & set(env)
    assert env["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in environment(tmp_path, {})


def test_only_what_a_training_uses_is_inherited_and_a_template_names_more(tmp_path: Path) -> None:
    secrets = {"JUPYTERHUB_API_TOKEN", "JUPYTER_TOKEN", "CI_JOB_TOKEN", "DATABASE_URL", "MY_KEY"}
    used = {"HOME", "LC_ALL", "HF_TOKEN", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "AWS_PROFILE"}
    used |= {"https_proxy", "NO_PROXY", "WANDB_API_KEY", "SSL_CERT_FILE", "LLMOPS_PEAK_TFLOPS"}
    used |= {"ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS"}
    user = dict.fromkeys(secrets | used | {"MY_DATA"}, "x")
    env = environment(tmp_path, user)
    assert used <= set(env)
    assert not {*secrets, "MY_DATA"} & set(env)
    named = ClusterTemplate(name="lab", inherit_env=("MY_DATA", "CI_*", "RAY_*"))
    env = environment(tmp_path, user | {"RAY_ADDRESS": "10.0.0.1:6379"}, named)
    assert {"MY_DATA", "CI_JOB_TOKEN"} <= set(env)
    assert not {"MY_KEY", "JUPYTERHUB_API_TOKEN", "RAY_ADDRESS"} & set(env)


def test_a_secret_is_passed_only_where_a_training_uses_that_very_one(tmp_path: Path) -> None:
    others = {"TF_TOKEN_app_terraform_io", "TF_VAR_db_password", "UV_PUBLISH_TOKEN", "VLLM_API_KEY"}
    others |= {"UV_PUBLISH_PASSWORD", "AZURE_DEVOPS_EXT_PAT", "MINIO_ROOT_PASSWORD", "PIP_PASSWORD"}
    others |= {"GOOGLE_API_KEY", "CLOUDSDK_AUTH_ACCESS_TOKEN", "HF_SPACE_SECRETS", "DS_DB_PASSWD"}
    used = {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_SAS_TOKEN"}
    used |= {"AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "MLFLOW_TRACKING_PASSWORD"}
    used |= {"TOKENIZERS_PARALLELISM", "TF_CPP_MIN_LOG_LEVEL", "TORCH_NCCL_AVOID_RECORD_STREAMS"}
    env = environment(tmp_path, dict.fromkeys(others | used, "x"))
    assert used <= set(env)
    assert not others & set(env)
    named = ClusterTemplate(name="lab", inherit_env=("VLLM_API_KEY",))
    assert "VLLM_API_KEY" in environment(tmp_path, dict.fromkeys(others, "x"), named)


def test_compiled_code_is_kept_where_no_other_user_can_put_some_first(tmp_path: Path) -> None:
    env = environment(tmp_path, {})
    for name in ("TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert Path(env[name]).is_relative_to(paths.cache())
    own = {"TORCHINDUCTOR_CACHE_DIR": "/scratch/mine"}
    assert environment(tmp_path, own).items() >= own.items()


def test_temporary_files_go_with_the_cluster_unless_the_user_named_a_folder(
    tmp_path: Path,
) -> None:
    temp_dir = head_record(tmp_path).temp_dir
    usual = environment(tmp_path, {})
    assert Path(usual["TMPDIR"]).parent == temp_dir
    assert usual["RAY_TMPDIR"] == "/tmp"  # As before, for a Ray that a script starts itself.
    for own in ({"TMPDIR": "/scratch/7"}, {"TMP": "/scratch/7"}):
        env = environment(tmp_path, own)
        assert own.items() <= env.items()
        assert "TMPDIR" in own or "TMPDIR" not in env
    template = ClusterTemplate(name="lab", env={"TMPDIR": "/scratch/lab"})
    assert environment(tmp_path, {}, template)["TMPDIR"] == "/scratch/lab"


def test_threads_that_wait_for_others_sleep_soon_unless_asked_otherwise(tmp_path: Path) -> None:
    """Beside other work, a step of two threads that spin took ten times as long."""
    assert int(environment(tmp_path, {})["GOMP_SPINCOUNT"]) < 10_000
    assert environment(tmp_path, {"GOMP_SPINCOUNT": "7"})["GOMP_SPINCOUNT"] == "7"
    template = ClusterTemplate(name="lab", env={"OMP_WAIT_POLICY": "active"})
    assert "GOMP_SPINCOUNT" not in environment(tmp_path, {}, template)


def test_python_in_a_job_is_our_interpreter(tmp_path: Path) -> None:
    ours = str(Path(sys.executable).parent)
    warm = environment(tmp_path, {"PATH": "/usr/bin"})
    launcher = str(launch.warm_folder(head_record(tmp_path)).bin)
    assert warm["PATH"].split(os.pathsep) == [launcher, ours, "/usr/bin"]
    off = ClusterTemplate.model_validate({"name": "lab", "warm": {"enabled": False}})
    cold = environment(tmp_path, {"PATH": "/usr/bin"}, off)
    assert cold["PATH"].split(os.pathsep) == [ours, "/usr/bin"]
    assert "LLMOPS_WARM_DIR" in warm
    assert "LLMOPS_WARM_DIR" not in cold


def test_the_template_reaches_the_head_but_cannot_turn_authentication_off(tmp_path: Path) -> None:
    template = ClusterTemplate(
        name="lab", stop_wait_s=7, env={"RAY_AUTH_MODE": "disabled", "NCCL_DEBUG": "INFO"}
    )
    env = environment(tmp_path, {"NCCL_DEBUG": "WARN"}, template)
    assert env["RAY_AUTH_MODE"] == "token"
    assert env["NCCL_DEBUG"] == "INFO"
    assert env["RAY_JOB_STOP_WAIT_TIME_S"] == "7"


def test_the_price_of_the_machine_reaches_its_processes(tmp_path: Path) -> None:
    assert NodePrice.read(environment(tmp_path, {})) is None
    template = ClusterTemplate(name="lab", price=Price(node_hour=2.5, kwh=0.3, currency="EUR"))
    found = NodePrice.read(environment(tmp_path, {}, template))
    assert found == NodePrice(node_hour=2.5, kwh=0.3, currency="EUR", only_node=True)


def test_the_head_knows_the_teams_grafana_unless_env_names_another(tmp_path: Path) -> None:
    data = {"name": "lab", "metrics": {"grafana": "http://g:3000", "prometheus": "http://p:9090"}}
    env = environment(tmp_path, {}, ClusterTemplate.model_validate(data))
    assert (env["RAY_GRAFANA_HOST"], env["RAY_PROMETHEUS_HOST"]) == (
        "http://g:3000",
        "http://p:9090",
    )
    own = ClusterTemplate.model_validate({**data, "env": {"RAY_GRAFANA_HOST": "DISABLED"}})
    assert environment(tmp_path, {}, own)["RAY_GRAFANA_HOST"] == "DISABLED"


def test_the_command_line_has_no_token_and_only_loopback(tmp_path: Path) -> None:
    template = ClusterTemplate(name="lab", num_cpus=3, num_gpus=0)
    folder = cluster_folder(tmp_path, "lab")
    folder.create()
    folder.new_token()
    line = launch.command(head_record(tmp_path), template)
    assert not any(folder.token.read_text() in word for word in line)
    assert {"--num-cpus=3", "--num-gpus=0", "--dashboard-host=127.0.0.1"} <= set(line)
    assert "--node-ip-address=127.0.0.1" in line


def test_socket_paths_fit_for_the_longest_name() -> None:
    folder = launch.new_temp_dir("a-name-of-forty-characters-and-no-fewer")
    try:
        assert len(str(folder / _SESSION / _SOCKET)) <= _UNIX_SOCKET_PATH_BYTES
        temporary = launch.temporary(head_record(folder))
        assert len(str(temporary / _OF_MULTIPROCESSING)) <= _UNIX_SOCKET_PATH_BYTES
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent.stat().st_mode & 0o777 == 0o700
    finally:
        folder.rmdir()


def test_a_taken_dashboard_port_is_reported_with_its_owner() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ClusterStartError, match=f"Port {port}.*pid {os.getpid()}") as caught:
            launch.dashboard_port(ClusterTemplate(dashboard_port=port))
    assert "dashboard_port" in caught.value.remedy


def test_a_big_object_store_in_a_small_shm_is_explained_and_moved(tmp_path: Path) -> None:
    template = ClusterTemplate(name="lab", object_store_memory_bytes=1 << 60)
    assert "--shm-size" in launch.small_shm(template)
    assert f"--plasma-directory={tmp_path}" in launch.command(head_record(tmp_path), template)
    assert launch.small_shm(ClusterTemplate(object_store_memory_bytes=75 << 20)) == ""


@pytest.mark.parametrize(
    ("hidden", "what"), [("ray", "Ray is not installed"), ("aiohttp_cors", r"ray\[default\]")]
)
def test_without_ray_the_command_that_installs_it_is_named(hidden: str, what: str) -> None:
    # A name that is None in sys.modules cannot be found, as if it were not installed.
    code = f"""
import re, sys
from llmops_kernel.providers.local import launch
from llmops_kernel.errors import MissingDependencyError
sys.modules[{hidden!r}] = None
try:
    launch.check_installed()
except MissingDependencyError as error:
    assert re.search({what!r}, error.message), error.message
    assert 'pip install "llmops-kernel[train]"' in error.remedy
    print("told")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "told\n"


def test_the_lazy_import_is_the_real_package_once_it_is_used() -> None:
    code = """
import sys, rfc3987_syntax
assert "lark" not in sys.modules
assert rfc3987_syntax.is_valid_syntax("iri", "http://example.org/ü")
assert not rfc3987_syntax.is_valid_syntax("iri", "not an iri")
from rfc3987_syntax import parse
print(parse.__module__)
"""
    lazy = Path(launch.__file__).parent / "lazy_imports"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(lazy)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "rfc3987_syntax.syntax_helpers\n"
