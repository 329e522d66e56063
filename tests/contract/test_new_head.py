"""CONTRIBUTING.md's new head, added to a copy of the package as the page says: compiled, checked, forged, removed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n# (src/maxaffine/\S+\.py)\n(.*?)^```", re.DOTALL | re.MULTILINE)

USE = """
import json, sys
import numpy as np
import maxaffine as ma
from maxaffine.checker import check
from maxaffine.heads import HEADS

(one,) = HEADS["middle"].examples
box = ma.Box(**one.box)
found = {}
for dtype in ("float64", "float32"):
    layer = ma.compile(one.target, box, error=one.error, method="middle", dtype=dtype)
    layer.save("middle.safetensors")
    again = ma.load("middle.safetensors")
    tensors, record = again._record()
    tensors["group.0.values"] = tensors["group.0.values"] + np.asarray(0.05, tensors["group.0.values"].dtype)
    found[dtype] = {
        "kind": layer.certificate.kind, "tokens": layer.tokens, "bound": layer.bound, "seen": layer.observed.error,
        "checked": again.check().bound, "passed": again.check().passed, "forged": check(tensors, record).passed,
        "explained": "middle" in layer.explain(), "module": float(layer.to_torch()(__import__("torch").zeros(1, 1)).detach()),
    }
try:
    ma.compile("sin(3*x)", box, error=0.1, method="middle")
except ma.Refused as refusal:
    found["refusal"] = str(refusal)
found["auto"] = ma.compile(one.target, box, error=one.error).method
json.dump(found, sys.stdout)
"""


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)


def insert(path: Path, pattern: str, replacement: str) -> None:
    changed, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"), count=1)
    assert count == 1, (path, pattern)
    path.write_text(changed, encoding="utf-8")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, with the head of the page in it."""
    shutil.copytree(ROOT / "src" / "maxaffine", tmp_path / "src" / "maxaffine")
    blocks = dict(BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text()))
    assert len(blocks) == 2
    for path, text in blocks.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    heads, checker = (tmp_path / "src" / "maxaffine" / name / "__init__.py" for name in ("heads", "checker"))
    insert(heads, r"from maxaffine\.heads import (\(?\s*)(\w)", r"from maxaffine.heads import \1middle, \2")
    insert(heads, r"(\s+)lookup\.HEAD,", r"\1middle.HEAD,\1lookup.HEAD,")
    insert(checker, r"\nfrom maxaffine\.checker", r"\nfrom maxaffine.checker.middle import check_middle\nfrom maxaffine.checker")
    insert(checker, r'(\s+)("piecewise"): ', r'\1"middle": Rule(check_middle),\1\2: ')
    return tmp_path


def test_a_head_is_a_folder_a_rule_and_two_lines(package: Path) -> None:
    done = run(package, USE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for dtype in ("float64", "float32"):
        made = found[dtype]
        assert made["kind"] == "proved" and made["tokens"] == 1 and made["passed"] and not made["forged"] and made["explained"]
        assert 0.0099 < made["seen"] <= min(made["bound"], made["checked"]) <= 0.02
        assert made["module"] == pytest.approx(5.0)
    assert "no middle head was proved" in found["refusal"]
    assert found["auto"] == "piecewise"  # which says more with as few tokens


def test_without_its_line_it_is_not_known(package: Path) -> None:
    heads = package / "src" / "maxaffine" / "heads" / "__init__.py"
    insert(heads, r"\s+middle\.HEAD,", "")
    done = run(package, "import maxaffine as ma\nma.compile('5 + x/100', ma.Box(x=(-1, 1)), error=0.02, method='middle')")
    assert done.returncode == 1 and "BadInput" in done.stderr and "middle" in done.stderr


def test_the_new_head_keeps_the_rules_of_the_house(package: Path) -> None:
    for path in BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text()):
        assert len(path[1].splitlines()) <= 140
    contracts = (ROOT / "pyproject.toml").read_text()
    assert "maxaffine.checker" in contracts
    imports = re.findall(r"^from (maxaffine\.\w+)", (package / "src/maxaffine/checker/middle.py").read_text(), re.MULTILINE)
    assert set(imports) <= {f"maxaffine.{name}" for name in ("checker", "core", "expression", "structure", "target")}
