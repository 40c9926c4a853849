"""Reading a ``config.json`` field by field, every problem kept, so that a file is mended once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roadworthy.core.errors import Problem, SpecError

WIDEST = 2**20
"""No width, head count or expert count of a real model comes near this; a larger one is a typing error."""
LONGEST_TOKENS = 2**31
HEAD_DIM_STEP, HEAD_DIM_MAX = 8, 512
NUMBER_FORMATS = ("bfloat16", "float16", "float32", "auto")
"""float32 checkpoints are served in 16 bits, as ``auto`` is."""


def shown(value: object) -> str:
    """``value`` as text, cut so that a message stays a line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class ConfigFields:
    """Typed access to a mapping. A wrong field adds a :class:`Problem` and yields a harmless stand-in.

    Call :meth:`check` before using what was read: it raises :class:`SpecError` with everything that was wrong.
    """

    def __init__(self, config: Mapping[str, object], *, path: str = "", problems: list[Problem] | None = None) -> None:
        self._config = config
        self._path = path
        self.problems: list[Problem] = problems if problems is not None else []

    def with_defaults(self, defaults: Mapping[str, object]) -> ConfigFields:
        """The same fields, with ``defaults`` where the file leaves one out."""
        return ConfigFields({**defaults, **self._config}, path=self._path, problems=self.problems)

    def has(self, name: str) -> bool:
        return self._config.get(name) is not None

    def complain(self, name: str, wanted: str, *, hint: str = "") -> None:
        seen = shown(self._config[name]) if name in self._config else "missing"
        self.problems.append(Problem(path=self._path + name, seen=seen, wanted=wanted, hint=hint))

    def count(self, name: str, *, default: int | None = None, least: int = 1, most: int = WIDEST) -> int:
        """A whole number from ``least`` to ``most``; ``default`` where the field may be left out or null."""
        value = self._config.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.complain(name, f"a whole number from {least} to {most}")
            return max(least, 1)
        return value

    def head_dim(self, name: str, *, default: int | None = None) -> int:
        """Width of an attention head: what kernels are built for are multiples of 8 up to :data:`HEAD_DIM_MAX`."""
        value = self.count(name, default=default)
        if self.has(name) and (value % HEAD_DIM_STEP or value > HEAD_DIM_MAX):
            self.complain(name, f"a multiple of {HEAD_DIM_STEP} up to {HEAD_DIM_MAX}, as attention kernels take")
        return value

    def number_format(self) -> None:
        """Complain of a ``torch_dtype`` (``dtype`` in newer files) that no engine serves."""
        for name in ("torch_dtype", "dtype"):
            value = self._config.get(name)
            if value is not None and value not in NUMBER_FORMATS:
                self.complain(name, "one of " + ", ".join(NUMBER_FORMATS))

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.complain(name, "true or false")
            return default
        return value

    def counts(self, name: str, *, least: int, most: int) -> tuple[int, ...]:
        """A list of whole numbers, each from ``least`` to ``most``."""
        value = self._config.get(name)
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            self.complain(name, "a list of whole numbers")
            return ()
        if any(isinstance(item, bool) or not isinstance(item, int) or not least <= item <= most for item in value):
            self.complain(name, f"whole numbers from {least} to {most}")
            return ()
        return tuple(value)

    def section(self, name: str) -> ConfigFields:
        """A nested mapping; its problems gather with ours."""
        value = self._config.get(name)
        if not isinstance(value, Mapping):
            self.complain(name, "a section of fields")
            value = {}
        return ConfigFields(value, path=f"{self._path}{name}.", problems=self.problems)

    def raw(self, name: str) -> object:
        return self._config.get(name)

    def divides(self, name: str, divisor_name: str, value: int, divisor: int) -> None:
        """Complain unless ``divisor`` divides ``value``."""
        if value % divisor:
            self.complain(name, f"a multiple of {divisor_name} = {divisor}")

    def check(self, model_id: str) -> None:
        """Raise SpecError when anything read so far was wrong."""
        if self.problems:
            fields = "1 field" if len(self.problems) == 1 else f"{len(self.problems)} fields"
            raise SpecError(
                f"{model_id}: {fields} of the model's config.json cannot be right",
                hint="compare with the config.json published beside the weights",
                problems=tuple(self.problems),
            )
