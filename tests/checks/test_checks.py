"""The repository's own rules, and that the checks would notice a breach."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks import hygiene, names, pins, sizes, types_of_ts, versions


def test_every_file_and_function_is_short_enough() -> None:
    assert sizes.too_long(sizes.checked_files()) == []


def test_nothing_is_committed_that_belongs_to_one_machine() -> None:
    assert hygiene.violations(hygiene.checked_files()) == []


def test_a_long_file_and_a_long_function_are_found(tmp_path: Path) -> None:
    file = tmp_path / "long.py"
    file.write_text("def f():\n" + "    x = 1\n" * 499)
    (about_file, about_function) = sizes.too_long([file])
    assert "500 lines, must stay under 500" in about_file
    assert "long.py:1: f has 500 lines" in about_function


def test_the_package_is_not_cut_into_more_pieces_than_it_was() -> None:
    counts = sizes.count(sizes.PACKAGE.rglob("*.py"))
    assert counts.files > 200
    assert sizes.above_ceiling(counts.figures()) == []


def test_lines_are_counted_by_what_stands_in_them(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        '"""Two\nlines."""\n\nimport os\nfrom x import (\n    y,\n)\n\n# comment\n'
        'A = 1  # code\n"""About A."""\n\n\ndef f():\n    import z\n    return """\n# text\n"""\n'
    )
    (tmp_path / "b.py").write_text("B = 2\n")
    counts = sizes.count(sorted(tmp_path.glob("*.py")))
    assert counts == sizes.Counts(files=2, lines=19, code=5, functions=1, imports=5)


def test_a_figure_above_its_ceiling_is_found() -> None:
    ceilings = sizes.CEILINGS
    assert sizes.above_ceiling(ceilings) == []
    (name, *_) = ceilings
    (problem,) = sizes.above_ceiling({**ceilings, name: ceilings[name] + 1})
    assert problem.startswith(name)


def test_no_package_has_more_bad_names_than_it_had() -> None:
    assert names.too_many(names.counts(names.checked_files())) == []


def test_a_bad_name_is_noticed_as_variable_parameter_and_field(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        "class A:\n    made: int\ndef f(wanted, rows):\n    for found in rows:\n        pass\n"
        "    return g(asked=rows.found)\n"
    )
    assert set(names.banned_names(file)) == {(2, "made"), (3, "wanted"), (4, "found")}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("see https://py" + "pi.org/simple/torch", "address of a package registry"),
        ("-i https://download.py" + "torch.org/whl/cpu", "address of a package registry"),
        ("--index-url=x", "pip option"),
        ('"resolved": "https://somewhere/x.tgz"', "lock file entry"),
        ("open('/wo" + "rk/main/x')", "path of one machine"),
        ("/home/ann/project", "path of one machine"),
    ],
)
def test_what_must_not_be_committed_is_found(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "file.txt"
    file.write_text(f"first\n{text}\n")
    found = hygiene.violations([file])
    assert found
    assert all(f"{file}:2: " in line for line in found)
    assert any(what in line for line in found)


def test_a_notebook_with_outputs_is_found(tmp_path: Path) -> None:
    file = tmp_path / "n.ipynb"
    file.write_text('{"cells": [{"outputs": []}, {"outputs": [{"text": "1"}]}]}')
    assert hygiene.violations([file]) == [
        f"{file}: cell 2 carries outputs; strip them before the commit"
    ]


def test_constraints_agree_with_this_environment() -> None:
    assert pins.differences() == []


def test_the_lab_extension_has_the_version_of_the_package() -> None:
    assert versions.differences() == []


def test_a_version_is_copied_into_both_npm_files_and_nothing_else_changes(tmp_path: Path) -> None:
    before = {}
    for name in ("package.json", "package-lock.json"):
        before[name] = (versions.EXTENSION / name).read_text()
        (tmp_path / name).write_text(before[name])
    assert len(versions.differences(tmp_path, version="9.8.7")) == 3
    versions.write(tmp_path, version="9.8.7")
    assert versions.differences(tmp_path, version="9.8.7") == []
    versions.write(tmp_path)
    assert before == {name: (tmp_path / name).read_text() for name in before}


def test_the_lock_of_npm_packages_is_among_the_checked_files() -> None:
    lock = hygiene.ROOT / "extension" / "package-lock.json"
    assert lock in hygiene.checked_files()
    assert '"resolved"' not in lock.read_text()


def test_typescript_has_no_any_and_no_switched_off_check() -> None:
    files = types_of_ts.checked_files()
    assert len(files) > 50
    assert types_of_ts.loose(files) == []


@pytest.mark.parametrize(
    "line",
    [
        "let a: any = 1;",
        "const b = x as any;",
        "const c = <any>x;",
        "function f(a: string, b: any[]): void {}",
        "const d: Map<string, any> = e;",
        "type F = string | any;",
        "type G = (a: number) => any;",
        "type H = any;",
        "type I = Array<any>;",
        "// @ts-ignore",
        "// @ts-nocheck",
    ],
)
def test_any_is_found_wherever_a_type_may_stand(tmp_path: Path, line: str) -> None:
    file = tmp_path / "x.ts"
    file.write_text(f"const first = 1;\n{line}\n")
    (found,) = types_of_ts.loose([file])
    assert found.startswith(f"{file}:2: ")


@pytest.mark.parametrize(
    "line",
    [
        "// of any kind: any, as any",
        "const a = 'as any';",
        'const b = "x: any";',
        "if (Promise.any(c)) {}",
        "const anything: Many = as_any;",
        "/* a: any */ let d: unknown;",
    ],
)
def test_words_are_no_types(tmp_path: Path, line: str) -> None:
    file = tmp_path / "x.ts"
    file.write_text(line)
    assert types_of_ts.loose([file]) == []
