"""Embed a run file in an HTML page, and read it back out of the page.

The page holds the text of the run file compressed by gzip, in base64, in a `<script>` of a type
that no browser executes. Base64 has no `<`, so no text of a run can end that element.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
from pathlib import Path
from typing import BinaryIO

from gpuperf.errors import RunFileError

DOCTYPE = b"<!doctype html"  # how a page begins, in letters of either case
START = b'<script type="application/gzip" id="gpuperf-run">'
END = b"</script>"
MOST_PAGE = 128 << 20  # bytes of an HTML page


def embed(text: bytes) -> str:
    """Return the element of a page that contains *text*, the whole text of a run file."""
    packed = base64.b64encode(gzip.compress(text, 9, mtime=0))
    return (START + packed + END).decode()


def is_page(file: BinaryIO) -> bool:
    """Whether *file* begins as an HTML page does."""
    head = file.read(len(DOCTYPE)).lower()
    file.seek(0)
    return head == DOCTYPE


def open_embedded(file: BinaryIO, path: Path) -> gzip.GzipFile:
    """Open the run file inside the page *file*; *path* names the page in errors.

    Raises: RunFileError for a page without a run, a damaged one, and one over 128 MiB.
    """
    page = file.read(MOST_PAGE + 1)
    if len(page) > MOST_PAGE:
        raise RunFileError(f"{path} is over {MOST_PAGE >> 20} MiB", "show the run file itself")
    start = page.find(START)
    end = page.find(END, start)
    if start == -1 or end == -1:
        raise RunFileError(
            f"{path} is an HTML page without a run of gpuperf",
            "`gpuperf show RUN --html FILE` writes pages that contain their run",
        )
    try:
        packed = base64.b64decode(page[start + len(START) : end], validate=True)
    except binascii.Error:
        raise RunFileError(
            f"the run inside {path} is damaged: it is not base64", "copy the page again"
        ) from None
    return gzip.GzipFile(fileobj=io.BytesIO(packed))
