"""The emoji pictures: three npm packages, fetched with the npm client and checked, turned into sprites.

Nothing of these packages is part of the repository or of the shipped model folder; they live in the work directory.
"""

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from .catalogue import Catalogue, Subject

SPRITE_SIZE = 112


@dataclass(frozen=True)
class NpmPackage:
    """An exact npm release; `integrity` is the base64 sha512 of its tarball."""

    name: str
    version: str
    integrity: str

    @property
    def folder(self) -> str:
        return f"{self.name.replace('@', '').replace('/', '-')}-{self.version}"


NOTO = NpmPackage(
    "emoji-datasource-google", "16.0.0",
    "ZRexfzs7MVoLnmzZmNsO4TKhnAJp5D++Vm6PpUpH/jEQQlemp3l88CjZ+DoZ2faM9R4QxZkOPJCoT8DlPhfQ3A==",
)  # fmt: skip
FLUENT = NpmPackage(
    "@lobehub/fluent-emoji-3d", "1.1.0",
    "Wlq2lVStTnr8BDpIJ0pEnTKO4LuDxxqTEhTvRtD1DLRF0me7ogeRQjKoehDHXuVJ2Qaecgl5wRBv60lUAG3h7g==",
)  # fmt: skip
LABELS = NpmPackage(
    "emojibase-data", "17.0.0",
    "Yvgb5AWoHViHV/gq1qr5ZAarcBip+B27/ZLRsUJkbgAEaLlZ/fof9g882LTpmEpyhBNEC0m2SEmItljHsTygjA==",
)  # fmt: skip


def fetch(package: NpmPackage, folder: Path) -> Path:
    """Folder of the unpacked package; downloads it with `npm pack` unless it is there already."""
    target = folder / package.folder
    if (target / "package" / "package.json").exists():
        return target / "package"
    folder.mkdir(parents=True, exist_ok=True)
    tarball = folder / f"{package.folder}.tgz"
    if not tarball.exists():
        _npm_pack(package, folder)
    _check_integrity(package, tarball)
    with tarfile.open(tarball) as archive:
        archive.extractall(target, filter="data")
    return target / "package"


def _npm_pack(package: NpmPackage, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            f"training needs the npm client to fetch {package.name}@{package.version}, and `npm` is not on the PATH. "
            f"Install Node.js, or put the tarball in {folder} as {package.folder}.tgz."
        )
    command = [npm, "pack", f"{package.name}@{package.version}", "--pack-destination", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"`npm pack {package.name}@{package.version}` failed:\n{done.stderr.strip()[-800:]}")


def _check_integrity(package: NpmPackage, tarball: Path) -> None:
    got = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
    if got != package.integrity:
        raise RuntimeError(
            f"{tarball.name}: sha512 is {got}, expected {package.integrity}. Delete the file and fetch it again."
        )


def build_sprites(catalogue: Catalogue, package_folder: Path) -> np.ndarray:
    """(subjects, 112, 112, 4) uint8 with colour premultiplied by alpha, in the order of the catalogue."""
    noto, fluent, labels = (fetch(p, package_folder) for p in (NOTO, FLUENT, LABELS))
    names = {e["label"]: e["hexcode"] for e in json.loads((labels / "en" / "data.json").read_text("utf-8"))}
    images = {e["unified"]: e["image"] for e in json.loads((noto / "emoji.json").read_text("utf-8"))}
    paths = [_sprite_path(subject, names, images, noto, fluent) for subject in catalogue.subjects]
    return np.stack([_sprite(path) for path in paths])


def _sprite_path(subject: Subject, names: dict, images: dict, noto: Path, fluent: Path) -> Path:
    if subject.emoji not in names:
        raise ValueError(f"no emoji is labelled {subject.emoji!r} in {LABELS.name}@{LABELS.version}")
    code = names[subject.emoji]
    candidates = (code, f"{code}-FE0F", code.removesuffix("-FE0F"))
    if subject.is_flag:  # Fluent Emoji has no country flags
        found = [noto / "img" / "google" / "64" / images[c] for c in candidates if c in images]
    else:
        found = [fluent / "assets" / f"{c.lower().lstrip('0')}.webp" for c in candidates]
    for path in found:
        if path.exists():
            return path
    raise FileNotFoundError(f"no picture for {subject.emoji!r}; looked for {[p.name for p in found]}")


def _sprite(path: Path) -> np.ndarray:
    """(112, 112, 4) uint8, premultiplied."""
    with Image.open(path) as image:
        resized = image.convert("RGBA").resize((SPRITE_SIZE, SPRITE_SIZE), Image.LANCZOS)
    pixels = np.asarray(resized, np.float32).copy()
    pixels[..., :3] *= pixels[..., 3:] / 255
    return pixels.round().astype(np.uint8)


def load_sprites(catalogue: Catalogue, work_dir: Path) -> np.ndarray:
    """The sprites, from the cache in the work directory when they were built before."""
    cache = work_dir / "sprites.npz"
    if not cache.exists():
        np.savez_compressed(cache, sprites=build_sprites(catalogue, work_dir / "packages"))
    return np.load(cache)["sprites"]
