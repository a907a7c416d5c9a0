"""Flat folders of files that are whole or absent, on this machine or in an object store."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pnml.backend.files import atomic_path
from pnml.io.locks import lock_folder
from pnml.io.paths import pyarrow, resolve

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pnml.io.paths import PathOrUri


def open_folder(path: PathOrUri) -> LocalFolder | RemoteFolder:
    """Return the folder at a path or a URI, which need not exist yet."""
    if isinstance(path, Path):
        return LocalFolder(path.absolute())  # workers have other working folders
    filesystem, inner = resolve(path)
    return LocalFolder(Path(inner)) if filesystem.type_name == "local" else RemoteFolder(path, filesystem, inner)


@dataclass(frozen=True)
class LocalFolder:
    """A folder on a disk, for which no pyarrow is needed."""

    path: Path

    def names(self) -> list[str]:
        """Return the names of the files, sorted; none if the folder does not exist."""
        if self.path.is_file():
            raise ValueError(f"{self.path} is a file: expected a folder, or nothing yet")
        return sorted(file.name for file in self.path.iterdir()) if self.path.exists() else []

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading; raise ``FileNotFoundError`` if it does not exist."""
        return (self.path / name).open("rb")

    def write(self, name: str, content: bytes) -> None:
        """Write a file under another name and rename it, in a folder that is created if needed."""
        self.path.mkdir(parents=True, exist_ok=True)
        with atomic_path(self.path / name, sweep=False) as partial:  # one of thousands of files in this folder
            partial.write_bytes(content)

    def delete(self, name: str) -> None:
        """Delete a file."""
        (self.path / name).unlink()

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes out that lock the folder, too."""
        return lock_folder(self.path)


@dataclass(frozen=True)
class RemoteFolder:
    """A folder in an object store, with the methods of :class:`LocalFolder`."""

    uri: str
    filesystem: Any
    path: str

    def names(self) -> list[str]:
        """Return the names of the files, sorted; none if the folder does not exist."""
        fs = pyarrow(".fs")
        if self.filesystem.get_file_info(self.path).type == fs.FileType.File:
            raise ValueError(f"{self.uri} is a file: expected a folder, or nothing yet")
        listing = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(info.base_name for info in listing)

    def open(self, name: str) -> Any:
        """Open a file for reading; raise ``FileNotFoundError`` if it does not exist."""
        return self.filesystem.open_input_file(f"{self.path}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a file in one call; the store shows it when it is whole, so a killed writer leaves nothing."""
        with self.filesystem.open_output_stream(f"{self.path}/{name}") as file:
            file.write(content)

    def delete(self, name: str) -> None:
        """Delete a file."""
        self.filesystem.delete_file(f"{self.path}/{name}")

    def lock(self) -> AbstractContextManager[None]:
        """Do nothing: stores have no locks, so writers have to notice each other in another way."""
        return nullcontext()
