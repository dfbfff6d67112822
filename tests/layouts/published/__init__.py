"""Scaled-down checkpoints in the layouts people download, written from the random models of the adapter tests.

One layout per file. The names in them are those of the published files, spelled out here once more and independently
of the package.
"""

from .chameleon_folder import chameleon_folder, lumina_folder
from .chameleon_official import chameleon_official, chameleon_parallel
from .emu3_folder import emu3_folder
from .emu3_original import EMU3_MERGES, emu3_original
from .files import Published, read_weights, write_weights
from .janus import janus_original
from .llamagen import llamagen_file

LAYOUTS = {
    "janus-original": janus_original,
    "janus-original-bin-no-pad": lambda folder: janus_original(folder, pad=False, suffix="bin"),
    "chameleon-official": chameleon_official,
    "chameleon-parallel": chameleon_parallel,
    "chameleon-folder": chameleon_folder,
    "chameleon-folder-bin": lambda folder: chameleon_folder(folder, suffix="bin"),
    "anole-folder": lambda folder: chameleon_folder(folder, decoder=True),
    "lumina-folder": lumina_folder,
    "emu3-folder": emu3_folder,
    "emu3-folder-former-names": lambda folder: emu3_folder(folder, former=True),
    "emu3-original": emu3_original,
    "llamagen-class": lambda folder: llamagen_file(folder, "class"),
    "llamagen-text": lambda folder: llamagen_file(folder, "text"),
}
WITHOUT_EXTRA = ("janus-original", "janus-original-bin-no-pad", "chameleon-official", "chameleon-parallel")
WITHOUT_EXTRA += ("anole-folder", "emu3-folder", "emu3-folder-former-names")

__all__ = ["EMU3_MERGES", "LAYOUTS", "WITHOUT_EXTRA", "Published", "read_weights", "write_weights"]
