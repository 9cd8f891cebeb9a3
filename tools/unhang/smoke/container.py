"""The command line that runs Python in the users' container image, with the node's GPUs, network
and shared memory, for each runtime.

The survey is never run in an image: it asks for the node's own addresses and routes with the node's
own ip(8). Values in, values out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unhang.core.errors import UserError

RUNTIMES = ("docker", "podman", "apptainer", "singularity", "enroot", "pyxis")
BY_SLURM = ("pyxis",)  # a plugin of srun: it adds options to srun and has no program of its own


@dataclass(frozen=True)
class Container:
    """image: as the runtime names it. python: in the image. options: further ones for the runtime.
    gpus: whether to ask for them.

    variables: of the environment, for runtimes that do not pass it on.
    """

    image: str
    runtime: str = "docker"
    python: str = "python3"
    options: tuple[str, ...] = ()
    gpus: bool = True
    variables: tuple[str, ...] = ()

    @property
    def program(self) -> list[str]:
        """The Python alone where srun starts the container, else as `argv`."""
        return [self.python] if self.runtime in BY_SLURM else self.argv()

    def argv(self, folder: str | None = None) -> list[str]:
        """argv that ends in the image's Python. folder: of the node, mounted inside at the same
        path. Standard input stays open: the program ends when it is closed."""
        if self.runtime in ("docker", "podman"):
            return [*self._engine(folder), self.image, self.python]
        if self.runtime in ("apptainer", "singularity"):
            gpus = ["--nv"] if self.gpus else []
            return [
                self.runtime,
                "exec",
                *gpus,
                *(["--bind", folder] if folder else []),
                *self.options,
                self.image,
                self.python,
            ]
        mount = ["--mount", f"{folder}:{folder}"] if folder else []
        return [
            "enroot",
            "start",
            "--rw",
            *self._handed_on(),
            *mount,
            *self.options,
            self.image,
            self.python,
        ]

    def _handed_on(self) -> list[str]:
        return [word for name in self.variables for word in ("--env", name)]

    def _engine(self, folder: str | None) -> list[str]:
        # NVIDIA asks for the limits:
        # https://docs.nvidia.com/deeplearning/frameworks/user-guide/index.html#setincshmem
        gpus = [] if not self.gpus else ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]
        gpus += (
            []
            if not self.gpus
            else (
                ["--gpus", "all"]
                if self.runtime == "docker"
                else ["--device", "nvidia.com/gpu=all"]
            )
        )
        mount = ["--volume", f"{folder}:{folder}"] if folder else []
        return [
            self.runtime,
            "run",
            "--rm",
            "--interactive",
            "--network",
            "host",
            "--ipc",
            "host",
            *gpus,
            *self._handed_on(),
            *mount,
            *self.options,
        ]

    def srun_options(self) -> list[str]:
        """For srun with the plugin pyxis."""
        return (
            [f"--container-image={self.image}", "--no-container-mount-home", *self.options]
            if self.runtime in BY_SLURM
            else []
        )


def choose_container(
    image: str | None,
    runtime: str | None,
    python: str | None,
    options: Sequence[str],
    launcher: str,
    gpus: bool,
) -> Container | None:
    """What the command line asks for; None without an image. launcher: local, fabric, slurm,
    ansible. Raises UserError for what does not go together."""
    if image is None:
        if options or runtime:
            raise UserError(
                "--container-runtime and --container-option need --container-image beside them"
            )
        return None
    chosen = runtime or ("pyxis" if launcher == "slurm" else "docker")
    if chosen in BY_SLURM and launcher != "slurm":
        others = ", ".join(name for name in RUNTIMES if name not in BY_SLURM)
        raise UserError(
            f"--container-runtime takes one of {others} here, not {chosen}, which only srun knows"
        )
    # Under Slurm the agent finds its part of the plan by its node's name.
    return Container(
        image,
        chosen,
        python or "python3",
        tuple(options),
        gpus,
        ("SLURMD_NODENAME",) if launcher == "slurm" else (),
    )
