"""A booted Debian node with a repository of its own, and the names of the drivers that are tested
on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import module_calls
from archive import Repository
from four_nodes import Fleet

PROPRIETARY = ("nvidia-driver", "nvidia-kernel-dkms")
T470 = ("nvidia-tesla-470-driver", "nvidia-tesla-470-kernel-dkms")
T535 = ("nvidia-tesla-535-driver", "nvidia-tesla-535-kernel-dkms")
SOURCE = "nvidia-graphics-drivers"
# upgraded whenever an upgrade is possible: it shows that an upgrade did run
CONTROL_PACKAGE = "unhang-control"


@dataclasses.dataclass
class Equipped:
    """A node and its repository. fleet: as in integration tests; versions: by their purpose."""

    fleet: Fleet
    name: str
    repository: Repository
    faults: Path
    versions: dict

    def shell(self, command, timeout_s=900):
        """Standard output of a root shell's command on the node, which must succeed."""
        return self.fleet.nodes[self.name].shell(command, timeout_s=timeout_s)

    def call(self, module, check=False, **options):
        """A module's result on the node."""
        return module_calls.call_module(
            self.fleet, self.name, module, check, answer_within_s=3000, **options
        )

    def installed(self, *patterns):
        """{package: version} of packages that are completely installed, by patterns of
        dpkg-query."""
        patterns = " ".join(f"'{pattern}'" for pattern in patterns or ("*",))
        output = self.shell(
            f"dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Abbrev}}\\n' {patterns}"
            " 2>/dev/null || :"
        )
        return {
            line.split()[0]: line.split()[1]
            for line in output.splitlines()
            if line.split()[-1] in ("ii", "hi")
        }

    def install(self, requests, version, source=SOURCE):
        """Installs a driver set as an administrator does, with its source pinned meanwhile."""
        self.fleet.nodes[self.name].write(
            "/etc/apt/preferences.d/set",
            f"Package: src:{source}\nPin: version {version}\nPin-Priority: 1001\n",
        )
        self.shell(
            "DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install"
            f" {' '.join(requests)} && rm /etc/apt/preferences.d/set"
        )
