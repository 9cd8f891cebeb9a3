"""A log of hundreds of megabytes needs no more memory than a small one: read in a child process
with a limit on its address space."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def test_memory_stays_bounded_whatever_the_size():
    """400 MB through a pipe into a process with an address space of at most 700 MB."""
    program = textwrap.dedent(
        """
        import io, resource, sys
        sys.path[:0] = %r
        from unhang.jobs.diagnose.logs.reading import Input, read_blocks
        from unhang.jobs.diagnose.matching.scanning import Sieve, scan_blocks
        from unhang.jobs.diagnose.matching.signatures import load_signatures
        sieve = Sieve(load_signatures())
        resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))
        class Log(io.RawIOBase):
            made = 0
            def read(self, size=-1):
                if self.made >= 400:
                    return b""
                self.made += 1
                line = b"gpu%%d:1:2 [0] NCCL INFO Channel 00/0 : %%d[0] -> %%d[1] via P2P/CUMEM %%d\\n"
                return b"".join(line %% (n, n, n, self.made) for n in range(14000))[:1 << 20]
        about = Input("log")
        scan_blocks(read_blocks(Log(), about), "log", sieve)
        print(about.lines)
        """
    ) % (sys.path,)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-400:]
    assert int(done.stdout) > 4_000_000
