"""The README's code does what the README says: its test, with the pinned graph, passes on its ops."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_code_in_the_readme_passes_its_own_test(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", README.read_text("utf-8"), flags=re.M | re.S)
    assert [name for name, _ in blocks] == ["norms.py", "test_norms.py"]
    for name, code in blocks:
        (tmp_path / name).write_text(code, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_norms.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
