"""Finds the routing profile of a pair of models: the user's own first, then those that come with the package."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from ..files import PACKAGE, cache_folder
from ..runtime.fingerprint import Fingerprint
from .profile import Profile, load

# in an installed wheel; in a source checkout
SHIPPED = (PACKAGE / "models" / "profiles", PACKAGE.parent / "models" / "profiles")


@dataclass(frozen=True, slots=True)
class ProfileMatch:
    """A profile of the verifier in use; `pair`: its draft model is the one in use, too."""

    profile: Profile
    path: Path
    pair: bool


def folder() -> Path:
    """Where calibration puts profiles: beside the folder of models; it need not exist."""
    return cache_folder() / "profiles"


def folders() -> tuple[Path, ...]:
    """Where profiles are looked for, the first one first."""
    return (folder(), *SHIPPED)


def file_name(verifier: Path, draft: Path | None) -> str:
    """The name of the profile of a pair."""
    return f"{verifier.stem}+{draft.stem}.json" if draft is not None else f"{verifier.stem}.json"


def known() -> Iterator[tuple[Path, Profile]]:
    """Every profile; a warning for each file that is none."""
    for place in folders():
        for path in sorted(place.glob("*.json")):
            try:
                yield path, load(path)
            except ModelError as error:
                warnings.warn(f"a profile is left out: {error}", RuntimeWarning, stacklevel=2)


def named(name: str) -> Path:
    """The file of a path, or of a profile's name as `profiles list` shows it; ModelError where there is none."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    for place in folders():
        for candidate in (place / name, place / f"{name}.json"):
            if candidate.parent == place and candidate.is_file():
                return candidate
    raise ModelError(f"there is no profile {name!r}; `via-sd-local profiles list` shows those that there are")


def find(verifier: Path, draft: Path | None) -> ProfileMatch | None:
    """The profile that fits the verifier's fingerprint; None if none does.

    The first one with the same draft comes before others; of others, the one whose slim tier is best.
    A file is only fingerprinted when its size is that of some profile's.
    """
    size = verifier.stat().st_size
    candidates = [(path, profile) for path, profile in known() if profile.verifier.size == size]
    if not candidates:
        return None
    mine = Fingerprint.of(verifier)
    matching = [(path, profile) for path, profile in candidates if not profile.verifier.differences(mine)]
    if not matching:
        return None
    theirs = Fingerprint.of(draft) if draft is not None else None
    found = [ProfileMatch(profile, path, _same(profile.draft, theirs)) for path, profile in matching]
    return next((one for one in found if one.pair), max(found, key=_agreement))


def _agreement(one: ProfileMatch) -> float:
    """Of the slim tier with the full model; 0 without one."""
    known = one.profile.agreement.get("q'-q")
    return known.share if known is not None and one.profile.has_mask else 0.0


def matching(path: Path, verifier: Path, draft: Path | None) -> ProfileMatch:
    """The profile at `path`; ModelError, with what differs, where it is of another verifier."""
    profile = load(path)
    differences = profile.verifier.differences(Fingerprint.of(verifier))
    if differences:
        raise ModelError(
            f"{path}: this profile is of another verifier than {verifier.name}: it is of {profile.verifier.file} with "
            f"{'; '.join(differences)}. Calibrate {verifier.name} itself, or leave the profile out"
        )
    theirs = Fingerprint.of(draft) if draft is not None else None
    return ProfileMatch(profile, path, _same(profile.draft, theirs))


def _same(one: Fingerprint | None, other: Fingerprint | None) -> bool:
    return one is not None and other is not None and not one.differences(other)
