"""The guard of a worker: what its processes hold together."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# A process of 80 MB and four of its forks, which share them; then a fork that has 300 MB alone.
SHARED = """
import os, time
from gpuperf.measure import guard

def fork(size):
    reader, writer = os.pipe()
    if os.fork() == 0:
        own = bytearray(os.urandom(1 << 20)) * size
        os.write(writer, b"x")
        time.sleep(60)
        os._exit(len(own))
    os.read(reader, 1)

large = bytearray(os.urandom(1 << 20)) * 80
for _ in range(4):
    fork(0)
held = [sum(map(count, guard._descendants(os.getpid()))) >> 20
        for count in (guard._anonymous, guard._share_of_anonymous)]
print(*held, repr(guard._starved(200 << 20)[0]))
fork(300)
print(guard._starved(200 << 20)[0])
for pid in guard._descendants(os.getpid()):
    os.kill(pid, 9)
"""


def test_pages_that_forks_share_are_counted_once() -> None:
    ended = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    shared, alone = ended.stdout.splitlines()
    apart, together, reason = shared.split(maxsplit=2)
    assert int(apart) > 320 > 200 > int(together)
    assert reason == "''"
    assert alone.startswith("it held 0.")
