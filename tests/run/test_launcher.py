"""What does a connection make of lines that its worker did not write?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuperf.run.launcher import LocalLauncher, Place

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc, its signals")

# In place of the worker's interpreter: it writes what its own name says.
WRITER = """#!{python} -S
import os, sys

JUNK = {junk!r}
(replies,) = [int(word.split("=")[1]) for word in sys.argv if word.startswith("--replies=")]
while os.write(replies, JUNK) and not JUNK.endswith(b"\\n"):
    pass
os.read(0, 1)
"""


@pytest.mark.parametrize(
    "junk",
    [b"junk\n", b"null\n", b"[" * 20_000 + b"]" * 20_000 + b"\n", b"\n", b"x" * 4096],
    ids=["a word", "null", "deep JSON", "an empty line", "no newline"],
)
def test_a_line_of_another_writer_is_refused(tmp_path: Path, junk: bytes) -> None:
    python = tmp_path / "python"
    python.write_text(WRITER.format(python=sys.executable, junk=junk))
    python.chmod(0o755)
    connection = LocalLauncher(place=Place(str(python), str(tmp_path))).start()
    try:
        with pytest.raises(ValueError, match="another writer than the worker"):
            connection.receive(20.0)
    finally:
        connection.kill()
