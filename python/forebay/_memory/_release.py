"""What a buffer lets go of that only Python can: an owner, or memory of a resource written in Python."""

from __future__ import annotations

from typing import Any, Optional


class Release:
    """Called when such memory is free: maybe later than `Buffer.close`, since a DLPack tensor or a view may hold it."""

    __slots__ = ("error", "inside_close", "owner", "ptr", "resource", "size", "stream")

    def __init__(self, owner: object, resource: Any, ptr: int, size: int, stream: object) -> None:
        self.owner, self.resource, self.ptr, self.size, self.stream = owner, resource, ptr, size, stream
        #: Set while `Buffer.close` runs, which can raise what `deallocate` raised; elsewhere nobody could catch it.
        self.inside_close = False
        self.error: Optional[BaseException] = None

    def __call__(self) -> None:
        """Gives the memory back, and lets go of its owner."""
        resource, self.owner, self.resource = self.resource, None, None
        if resource is None:
            return
        try:
            # By name: some resources take the stream by position or name, some by name only.
            resource.deallocate(self.ptr, self.size, stream=self.stream)
        except BaseException as error:
            if not self.inside_close:
                raise  # the extension hands it to sys.unraisablehook
            self.error = error
