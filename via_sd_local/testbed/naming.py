"""Where a testbed and its draft model are kept, and under which names."""

from __future__ import annotations

from pathlib import Path

from .recipe import Recipe

DEFAULT_SOURCE = "smollm2-135m"
DEFAULT_RECIPE = Recipe()


def paths_of(source: Path, recipe: Recipe, output: Path | None = None) -> tuple[Path, Path]:
    """Return the paths of the testbed and of its draft model, which lie in the same folder.

    Without `output`, the testbed is in the models folder, under a name that tells its recipe.
    """
    from ..catalog.lookup import models_folder  # here: the command line needs only the defaults

    name = source_name(source)
    verifier = output if output is not None else models_folder() / file_name(name, recipe)
    return verifier, verifier.with_name(f"{name}-q4_0.gguf")


def source_name(source: Path) -> str:
    """Return the catalogue's name of the model with this file name, else the file name without its suffix."""
    from ..catalog.registry import registry

    names = {model.file: model.name for model in registry().models.values()}
    return names.get(source.name, source.stem)


def file_name(source: str, recipe: Recipe) -> str:
    """Return a file name that tells the source and the recipe, the two being left out where they are the defaults."""
    origin = "" if source == DEFAULT_SOURCE else f"{source}-"
    place = "" if recipe.copies_from == DEFAULT_RECIPE.copies_from else f"from{recipe.copies_from:g}-"
    return (
        f"testbed-{origin}e{recipe.embed}-f{recipe.ffn}-k{recipe.kv_heads}-c{recipe.copies}-{place}"
        f"s{recipe.scale:g}-{recipe.quant}.gguf"
    )
