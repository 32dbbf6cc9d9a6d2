"""Find a model by its name, or read it from a file: TOML, or a Hugging Face `config.json`."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping
from pathlib import Path

from gpuperf.errors import UnknownName, UsageError
from gpuperf.files import read_regular
from gpuperf.theory.transformer.config_json import parse_config
from gpuperf.theory.transformer.file import parse_model
from gpuperf.theory.transformer.model import Model

MOST_BYTES = 1 << 20  # of a file; a config.json has 1 to 100 kB
CONFIG = "config.json"


@functools.cache
def _files() -> Mapping[str, str]:
    """Return the texts of the built-in models by name."""
    folder = importlib.resources.files("gpuperf.configs") / "models"
    files = [f for f in folder.iterdir() if f.name.endswith(".toml")]
    return {f.name.removesuffix(".toml"): f.read_text(encoding="utf-8") for f in files}


def model_names() -> tuple[str, ...]:
    """Return the names of the built-in models."""
    return tuple(sorted(_files()))


@functools.lru_cache(maxsize=64)
def builtin_model(name: str) -> Model:
    """Return the built-in model *name*. Raises: KeyError."""
    return parse_model(_files()[name], f"{name}.toml")


def find_model(name: str) -> Model:
    """Return the model *name*: a built-in one, or the path of a TOML or of a `config.json` (or of
    the folder that holds it).

    Raises: UnknownName, and UsageError for a file that cannot be read or has no usable sizes.
    """
    key = name.strip().lower()
    if key in _files():
        return builtin_model(key)
    if name.endswith((".json", ".toml")) or "/" in name or name in (".", ".."):
        return _read(Path(name))
    raise UnknownName(
        "model",
        name,
        model_names(),
        f"one of {', '.join(model_names())}, or the path of a Hugging Face {CONFIG}",
    )


def _read(path: Path) -> Model:
    try:
        path = path / CONFIG if path.is_dir() else path
        text = read_regular(path, MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {str(path)!r}", f"give the path of a {CONFIG}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"the model {str(path)!r} cannot be read: {reason}",
            f"give the {CONFIG} of a model, of at most 1 MiB",
        ) from None
    if path.suffix == ".toml":
        return parse_model(text, str(path))
    return parse_config(text, str(path))
