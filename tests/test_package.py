"""The package as a user gets it: what is in the wheel, what imports what, what `import hires` loads."""

import ast
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The four directories that lie side by side in the root, and what they are called when installed.
SOURCES = {"hires": "hires", "models": "hires/models", "tiling": "hires/tiling", "jobs": "hires/jobs"}


def modules(folder: str) -> list[Path]:
    return sorted(p for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built without network from a copy: a build/ left in the checkout would get into it."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("building the wheel without network needs setuptools in this environment")
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    out = copy / "out"
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
                           "--no-index", "-w", str(out), str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


def test_every_module_is_in_the_wheel_under_hires(wheel: Path) -> None:
    inside = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    wanted = {f"{SOURCES[d]}/{p.relative_to(ROOT / d)}" for d in SOURCES for p in modules(d)}
    wanted.add("hires/py.typed")
    assert len(wanted) > 20
    assert inside == wanted


def test_the_wheel_has_licence_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert any(n.endswith("licenses/LICENSE") for n in names)
        (points,) = [n for n in names if n.endswith("entry_points.txt")]
        assert "hires = hires.cli:main" in archive.read(points).decode()


def test_the_wheel_works_from_elsewhere(wheel: Path, tmp_path: Path) -> None:
    """Unpacked in an empty folder: the four packages import from there, bare `models` doesn't exist."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = ("import importlib.util, sys, hires, hires.models, hires.tiling, hires.jobs; "
            "print(hires.models.__file__); "
            "assert importlib.util.find_spec('hires.numpy') is None; "
            "assert all(importlib.util.find_spec(n) is None for n in ('models', 'tiling', 'jobs'))")
    # -P: not the current folder; PYTHONPATH stands before an editable install of the checkout.
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path / "site")})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "site" / "hires" / "models" / "__init__.py")


def test_import_hires_loads_no_torch() -> None:
    code = "import sys, hires; print(sorted({'torch', 'numpy', 'zarr', 'torchvision'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def imported(path: Path) -> set[str]:
    """Full names of everything a file imports, at any depth of it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute, as in `from hires.tiling.box import …`"
            names |= {f"{node.module}.{a.name}" for a in node.names}
    return names


def starts(name: str, *prefixes: str) -> bool:
    return any(name == p or name.startswith(p + ".") for p in prefixes)


@pytest.mark.parametrize("path", modules("tiling"), ids=lambda p: str(p.relative_to(ROOT)))
def test_tiling_knows_no_torch_and_no_engine(path: Path) -> None:
    for name in imported(path):
        assert not starts(name, "torch", "torchvision"), f"{path} imports {name}"
        if starts(name, "hires"):
            assert starts(name, "hires.tiling", "hires.errors"), f"{path} imports {name}"


@pytest.mark.parametrize("path", modules("models"), ids=lambda p: str(p.relative_to(ROOT)))
def test_models_know_no_engine(path: Path) -> None:
    for name in imported(path):
        if starts(name, "hires"):
            assert starts(name, "hires.models", "hires.errors"), f"{path} imports {name}"


@pytest.mark.parametrize("path", [p for d in SOURCES for p in modules(d)],
                         ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_imports_a_bare_folder(path: Path) -> None:
    assert not [n for n in imported(path) if starts(n, "models", "tiling", "jobs", "tests")]


def test_importing_tiling_loads_no_torch() -> None:
    names = [".".join(["hires", *p.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
             for p in modules("tiling")]
    code = (f"import importlib, sys; [importlib.import_module(n) for n in {names}]; "
            "print('torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


def test_public_names() -> None:
    import hires

    assert hires.__all__ == sorted(hires.__all__) == dir(hires)
    for name in hires.__all__:
        assert getattr(hires, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'strem'"):
        _ = hires.strem


def test_the_name_stream_is_the_function_even_after_its_module_is_imported() -> None:
    import hires

    importlib.import_module("hires.stream")
    assert callable(hires.stream) and hires.stream.__name__ == "stream"


def test_version_is_that_of_the_package() -> None:
    import tomllib

    import hires

    assert hires.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
