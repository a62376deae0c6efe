"""The list of parts names each pinned package that a user gets, and what the wheel bundles."""

from __future__ import annotations

import json

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from llmops_kernel.version import VERSION
from tests.checks import pins, sbom

pytestmark = pytest.mark.skipif(
    not sbom.BUNDLED.exists(), reason="the Lab extension is not built; make labextension"
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sbom") / "parts.cdx.json"
    sbom.main(str(path))
    return path.read_text()


def purls(text: str) -> set[str]:
    return {part["purl"] for part in json.loads(text)["components"]}


def test_it_is_valid_by_the_published_schema(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert json.loads(text)["metadata"]["component"]["purl"] == f"pkg:pypi/llmops-kernel@{VERSION}"


def test_packages_have_the_pinned_versions(text: str) -> None:
    pinned = pins.pinned(pins.FILE.read_text())
    packages = {
        name: version
        for name, _, version in (
            purl.removeprefix("pkg:pypi/").partition("@")
            for purl in purls(text)
            if purl.startswith("pkg:pypi/")
        )
    }
    assert {"torch", "ray", "jupyterlab", "kubernetes", "mcp", "bitsandbytes", "numpy"} <= set(
        packages
    )
    # Those of tests and documentation are in no user's environment.
    assert not {"pytest", "trl", "sphinx", "lightning"} & set(packages)
    assert {name: pinned[name] for name in packages if name in pinned} == {
        name: version for name, version in packages.items() if name in pinned
    }
    assert len(set(packages) - set(pinned)) <= 30  # torch's CUDA libraries, where it has them.


def test_what_the_lab_extension_bundles_is_listed(text: str) -> None:
    assert any(purl.startswith("pkg:npm/uplot@1.6") for purl in purls(text))


def test_each_part_has_a_licence_and_is_needed_by_something(text: str) -> None:
    listed = json.loads(text)
    assert [part["name"] for part in listed["components"] if not part.get("licenses")] == []
    needed = {name for each in listed["dependencies"] for name in each.get("dependsOn", ())}
    assert {part["bom-ref"] for part in listed["components"]} <= needed
