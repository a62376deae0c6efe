"""Writes the parts of a release (SBOM) as CycloneDX JSON: what is bundled, and the pinned packages.

    python -m tests.checks.sbom dist/llmops_kernel-0.1.0.cdx.json

Versions and licences are those of the installed packages, as `make install` puts them there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
NAME = "llmops-kernel"
EXTRAS = ("train", "lab", "kubernetes", "agents", "gpu", "sweep")
"""Extras whose packages constraints.txt pins. vLLM's are pinned by llmops_kernel/score_env; those
of the trackers and of kernels for GPUs are not."""
BUNDLED = ROOT / "llmops_kernel" / "labextension" / "static" / "third-party-licenses.json"


def parts() -> Bom:
    """Return the package, what it needs and what needs that, and the scripts in its wheel."""
    bom = Bom()
    components: dict[str, Component] = {}
    _add(NAME, EXTRAS, bom, components)
    package = components[NAME]
    bom.metadata.component = package
    bom.components.discard(package)
    scripts = [_script(part) for part in _bundled()]
    for script in scripts:
        bom.components.add(script)
    needs = [components[name] for name, _ in _needs(NAME, EXTRAS)]
    bom.register_dependency(package, [*needs, *scripts])
    return bom


def _add(name: str, extras: Iterable[str], bom: Bom, components: dict[str, Component]) -> None:
    """Add a package and, once each, those that it needs."""
    if name not in components:
        components[name] = _package(name)
        bom.components.add(components[name])
    for other, its_extras in _needs(name, extras):
        if other not in components or its_extras:
            _add(other, its_extras, bom, components)
        bom.register_dependency(components[name], [components[other]])


def _needs(name: str, extras: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(requirement.name), requirement.extras


def _package(name: str) -> Component:
    about = metadata.metadata(name)
    # A local label, such as +cpu, is of one machine.
    version = metadata.version(name).partition("+")[0]
    text = about.get("License-Expression") or about.get("License") or ""
    classifiers = [each for each in about.get_all("Classifier") or () if each.startswith("License")]
    if not text or "\n" in text:  # Some put the whole text there.
        text = classifiers[0].rpartition(" :: ")[2] if classifiers else ""
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", name=name, version=version),
        bom_ref=f"{name}=={version}",
        licenses=[LicenseFactory().make_from_string(text)] if text else [],
    )


def _bundled() -> list[Mapping[str, str]]:
    if not BUNDLED.exists():
        raise SystemExit("The Lab extension is not built. Try: make labextension")
    bundled: list[Mapping[str, str]] = json.loads(BUNDLED.read_text(encoding="utf-8"))["packages"]
    return bundled


def _script(part: Mapping[str, str]) -> Component:
    name, version, license_id = (part[key] for key in ("name", "versionInfo", "licenseId"))
    group, _, own = name.rpartition("/")
    return Component(
        name=own,
        group=group or None,
        version=version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("npm", namespace=group or None, name=own, version=version),
        bom_ref=f"{name}@{version}",
        licenses=[LicenseFactory().make_from_string(license_id)] if license_id else [],
    )


def main(path: str) -> None:
    """Write the file."""
    bom = parts()
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    Path(path).write_text(f"{text}\n", encoding="utf-8")
    print(f"{path}: {len(bom.components)} parts")


if __name__ == "__main__":
    main(sys.argv[1])
