"""Exchange messages with another host over TCP, a line of JSON each.

Lines are bounded and decoded into typed values. A connection whose other end is silent at the level
of TCP for half a minute counts as closed, so a host that loses its power is noticed.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import Any

import msgspec

from gpuperf.model.codec import decode

LONGEST_LINE = 64 << 20  # bytes; a record of a gang has some kilobytes
UNREAD_S = 60.0  # seconds for which the other end may leave a message unread
# Seconds of silence, seconds between two probes, and probes, until a connection counts as closed.
IDLE_S, PROBE_S, PROBES = 15, 5, 3


class Link:
    """A connection over which *messages* of one type arrive; `closed` says that it has ended."""

    def __init__(self, connected: socket.socket, messages: Any) -> None:
        self._socket, self._messages = connected, messages
        self._buffer, self._searched = bytearray(), 0
        self.closed = False
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", IDLE_S),
            ("TCP_KEEPINTVL", PROBE_S),
            ("TCP_KEEPCNT", PROBES),
        ):
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, message: Any) -> None:
        """Send *message*. Raises: BrokenPipeError where the other end is gone or does not read."""
        rest = memoryview(msgspec.json.encode(message) + b"\n")
        while rest and not self.closed:
            if not select.select([], [self._socket], [], UNREAD_S)[1]:
                break
            try:
                rest = rest[self._socket.send(rest) :]
            except OSError:
                self.closed = True
        if rest:
            self.closed = True
            raise BrokenPipeError

    def receive(self, timeout_s: float) -> Any:
        """Return the next message; None if none came in time or the other end is closed.

        Raises: ValueError for a line that is no such message.
        """
        end = time.monotonic() + timeout_s
        while (at := self._buffer.find(b"\n", self._searched)) == -1:
            self._searched = len(self._buffer)
            if len(self._buffer) > LONGEST_LINE:
                self.close()
                raise ValueError(f"a line of over {LONGEST_LINE >> 20} MiB")
            if self.closed or not self._read(max(0.0, end - time.monotonic())):
                return None
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        self._searched = 0
        return decode(line, self._messages)

    def _read(self, timeout_s: float) -> bool:
        """Read what has arrived into the buffer; return False if nothing came in time."""
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return False
        data = b""
        with contextlib.suppress(OSError):  # a connection that was reset is closed
            data = self._socket.recv(1 << 20)
        self.closed = self.closed or not data
        self._buffer += data
        return bool(data)

    def close(self) -> None:
        """Close this end of the connection."""
        self.closed = True
        self._socket.close()
