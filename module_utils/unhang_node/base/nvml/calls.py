"""Makes one NVML call at a time: marked before it is made; an error becomes an unread field with
its reason."""

from __future__ import annotations

from .names import (
    ARGUMENT_VERSION_MISMATCH,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    error_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..context import MarkFunction
    from ..section import Unread

    Entry = int | tuple[int, int]
    FieldAnswers = dict[Entry, tuple[int, Any]]

STATUSES = {
    NOT_SUPPORTED: "absent",
    FUNCTION_NOT_FOUND: "absent",
    NOT_FOUND: "absent",
    26: "absent",  # deprecated
    NO_PERMISSION: "denied",
    10: "timeout",
}
OLD_DRIVER = (FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH)


class Lost(Exception):
    """The GPU no longer answers; its text is NVML's error and the call that met it."""


class Asking:
    """Calls of one session.

    handle: the GPU; prefix: path of the answers in the section ("devices[3]."); label: the text in
    parentheses in a call's mark.
    """

    def __init__(
        self,
        session: Any,
        mark: MarkFunction,
        unread: Unread,
        prefix: str = "",
        label: str = "",
        handle: Any = None,
    ) -> None:
        self.handle = handle
        self.session = session
        self.mark = mark
        self.unread = unread
        self.prefix = prefix
        self.label = label

    def about(
        self, prefix: str, label: str, unread: Unread | None = None, handle: Any = None
    ) -> Asking:
        """The same session with another prefix and label. handle: another GPU; None keeps the
        GPU."""
        return Asking(
            self.session,
            self.mark,
            self.unread if unread is None else unread,
            prefix,
            label,
            handle or self.handle,
        )

    def ask(self, field: str | None, name: str, *arguments: Any) -> Any:
        """What the call returns, or None with the reason noted for `field` (None: not noted).
        Raises Lost."""
        answer, code = self.try_ask(name, *arguments)
        if code:
            self.note(field, code, name)
        return answer

    def ask_first(self, field: str | None, *calls: tuple[Any, ...]) -> Any:
        """The answer of the first call (a tuple of name and arguments) that this driver knows."""
        code, name = 0, ""
        for name, *arguments in calls:
            answer, code = self.try_ask(name, *arguments)
            if not code:
                return answer
            if code not in OLD_DRIVER:
                break
        self.note(field, code, name)
        return None

    def try_ask(self, name: str, *arguments: Any) -> tuple[Any, int]:
        """(answer, 0), or (None, NVML's error code). Raises Lost."""
        self.mark(f"{name}({self.label})")
        try:
            answer = getattr(self.session, name)(*arguments)
            return (answer.decode("utf-8") if isinstance(answer, bytes) else answer), 0
        except self.session.NVMLError as problem:
            if problem.value in (GPU_IS_LOST, RESET_REQUIRED):
                raise Lost(f"{error_name(problem.value)} from {name}") from None
            return None, problem.value
        except UnicodeDecodeError:
            return None, 999

    def note(self, field: str | None, code: int, name: str) -> None:
        """Notes that `field` stays null because call `name` answered `code`."""
        if field is not None:
            self.unread.add(
                self.prefix + field, STATUSES.get(code, "error"), f"{error_name(code)} from {name}"
            )

    def fields(self, wanted: Iterable[Entry]) -> FieldAnswers:
        """{entry: (code, value)} of nvmlDeviceGetFieldValues; entries are field numbers or (number,
        scope). {} when it cannot be called."""
        values, code = self.try_ask("nvmlDeviceGetFieldValues", self.handle, list(wanted))
        if code:
            return {}
        return {
            entry: (values[index].nvmlReturn, values[index].value.ullVal)
            for index, entry in enumerate(wanted)
        }
