"""Embed a run file in an HTML page, and read it back out of the page.

The page holds the text of the run file in a `<script>` of a type that no browser executes:
compressed by gzip, in base64, which any tool and the page's own script can undo, or, if that is
large, by `packed.py`, in base85. Neither alphabet has a `<`, so no text of a run can end that
element.
"""

from __future__ import annotations

import base64
import gzip
import io
from pathlib import Path
from typing import BinaryIO

from gpuperf.errors import RunFileError
from gpuperf.run.packed import Expanded, pack, unpack

DOCTYPE = b"<!doctype html"  # how a page begins, in letters of either case
START = b'<script type="application/gzip" id="gpuperf-run">'
START_PACKED = b'<script type="application/x-gpuperf-packed">'
END = b"</script>"
MOST_PAGE = 128 << 20  # bytes of an HTML page
MOST_TEXT = 256 << 20  # bytes of the run file in it
LARGE = 200_000  # bytes of a compressed run file from which on it is packed
OPEN, CLOSED = b"<", b","  # base85 has the one, which may begin a tag, and lacks the other


def embed(text: bytes) -> str:
    """Return the element of a page that contains *text*, the whole text of a run file."""
    zipped = gzip.compress(text, 9, mtime=0)
    packed = pack(text) if len(zipped) > LARGE else None
    if packed is None:
        return (START + base64.b64encode(zipped) + END).decode()
    return (START_PACKED + base64.b85encode(packed).replace(OPEN, CLOSED) + END).decode()


def is_page(file: BinaryIO) -> bool:
    """Whether *file* begins as an HTML page does."""
    head = file.read(len(DOCTYPE)).lower()
    file.seek(0)
    return head == DOCTYPE


def open_embedded(file: BinaryIO, path: Path) -> io.BufferedIOBase:
    """Open the run file inside the page *file*; *path* names the page in errors.

    Raises: RunFileError for a page without a run, a damaged one, and one over 128 MiB.
    """
    page = file.read(MOST_PAGE + 1)
    if len(page) > MOST_PAGE:
        raise RunFileError(f"{path} is over {MOST_PAGE >> 20} MiB", "show the run file itself")
    zipped, packed = _element(page, START), _element(page, START_PACKED)
    if zipped is None and packed is None:
        if START in page or START_PACKED in page:
            raise RunFileError(
                f"{path} is an HTML page whose run is cut off", "copy the page again"
            )
        raise RunFileError(
            f"{path} is an HTML page without a run of gpuperf",
            "`gpuperf show` reads pages of one run, and `gpuperf gate check FILE` those of gates",
        )
    try:
        if packed is None:
            data = base64.b64decode(zipped or b"", validate=True)
            return gzip.GzipFile(fileobj=io.BytesIO(data))
        data = base64.b85decode(packed.replace(CLOSED, OPEN))
        return io.BytesIO(unpack(data, MOST_TEXT))
    except Expanded:
        raise RunFileError(
            f"the run inside {path} expands to over {MOST_TEXT >> 20} MiB",
            "show the run file itself",
        ) from None
    except ValueError as error:
        what = f"base{64 if packed is None else 85}"
        reason = f"it is not {what}" if what in str(error) else str(error)
        raise RunFileError(
            f"the run inside {path} is damaged: {reason}", "copy the page again"
        ) from None


def _element(page: bytes, start: bytes) -> bytes | None:
    """Return the content of the element of *page* that *start* opens; None if it has no end."""
    begin = page.find(start)
    end = page.find(END, begin)
    return None if begin == -1 or end == -1 else page[begin + len(start) : end]
