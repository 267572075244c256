"""Finds the routing profile of a pair of models: first among the user's own, then among the shipped ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from ..files import PACKAGE, cache_folder, needed_cache_folder, user_path
from ..runtime.fingerprint import Fingerprint
from .profile import Profile, load

# in an installed wheel; in a source checkout
SHIPPED = (PACKAGE / "models" / "profiles", PACKAGE.parent / "models" / "profiles")


@dataclass(frozen=True, slots=True)
class ProfileMatch:
    """A profile that was made for the verifier in use; `pair` tells whether its draft model is in use, too."""

    profile: Profile
    path: Path
    pair: bool


def folder() -> Path:
    """Return the folder where calibration puts profiles, `profiles` in `cache_folder()`; it need not exist."""
    return cache_folder() / "profiles"


def folders() -> tuple[Path, ...]:
    """Return the folders to search for profiles, in this order."""
    return (folder(), *SHIPPED)


def file_name(verifier: Path, draft: Path | None) -> str:
    """Return the file name of the profile of a pair of models."""
    return f"{verifier.stem}+{draft.stem}.json" if draft is not None else f"{verifier.stem}.json"


def default_path(verifier: Path, draft: Path | None) -> Path:
    """Return the path at which calibration saves the profile of a pair, unless another one is given.

    Raises ModelError for a user without a home folder.
    """
    needed_cache_folder()
    return folder() / file_name(verifier, draft)


def profiles() -> Iterator[tuple[Path, Profile]]:
    """Iterate over all profiles, with a warning for each file that cannot be read as one."""
    for place in folders():
        for path in sorted(place.glob("*.json")):
            try:
                yield path, load(path)
            except ModelError as error:
                warnings.warn(f"a profile is left out: {error}", RuntimeWarning, stacklevel=2)


def path_of(name: str) -> Path:
    """Return the file of a path or of a name that `profiles list` shows; raises ModelError where there is none."""
    path = user_path(name)
    if path.is_file():
        return path
    for place in folders():
        for candidate in (place / name, place / f"{name}.json"):
            if candidate.parent == place and candidate.is_file():
                return candidate
    raise ModelError(f"there is no profile {name!r}; `via-sd-local profiles list` shows those that there are")


def find(verifier: Path, draft: Path | None) -> ProfileMatch | None:
    """Return the profile whose verifier has this file's fingerprint, or None.

    The first one with the same draft model is preferred; among the others, the one whose slim tier agrees with the full
    model most often. The verifier is fingerprinted only if some profile's verifier has the same size.
    """
    size = verifier.stat().st_size
    candidates = [(path, profile) for path, profile in profiles() if profile.verifier.size == size]
    if not candidates:
        return None
    fingerprint = Fingerprint.of(verifier)
    fitting = [(path, profile) for path, profile in candidates if not profile.verifier.differences(fingerprint)]
    if not fitting:
        return None
    draft_fingerprint = Fingerprint.of(draft) if draft is not None else None
    matches = [ProfileMatch(profile, path, _is_same(profile.draft, draft_fingerprint)) for path, profile in fitting]
    return next((match for match in matches if match.pair), max(matches, key=_slim_agreement))


def load_for(path: Path, verifier: Path, draft: Path | None) -> ProfileMatch:
    """Load the profile at `path`; raises ModelError, with the differences, if it was made for another verifier."""
    profile = load(path)
    differences = profile.verifier.differences(Fingerprint.of(verifier))
    if differences:
        raise ModelError(
            f"{path}: this profile is of another verifier than {verifier.name}: it is of {profile.verifier.file} with "
            f"{'; '.join(differences)}. Calibrate {verifier.name} itself, or leave the profile out"
        )
    draft_fingerprint = Fingerprint.of(draft) if draft is not None else None
    return ProfileMatch(profile, path, _is_same(profile.draft, draft_fingerprint))


def _slim_agreement(match: ProfileMatch) -> float:
    """Return the share of tokens on which the slim tier agrees with the full model; 0 without a slim tier."""
    agreement = match.profile.agreement.get("q'-q")
    return agreement.share if agreement is not None and match.profile.has_mask else 0.0


def _is_same(one: Fingerprint | None, other: Fingerprint | None) -> bool:
    return one is not None and other is not None and not one.differences(other)
