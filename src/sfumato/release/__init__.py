"""A release: the noisy table with its proof attached.

`release` derives everything from noisy answers, `files` packs the answers, `certificate` and `writeup`
state the guarantee to machines and to people, `folder` is the one way in and out of a folder, `verify`
derives it all again.
"""

from typing import TYPE_CHECKING

from sfumato._lazy import lend_names

if TYPE_CHECKING:
    from sfumato.release.certificate import describe_entries, describe_entry
    from sfumato.release.files import (
        PackedAnswers,
        append_answers,
        pack_measurements,
        pack_step,
        split_answers,
        unpack_step,
    )
    from sfumato.release.folder import Begun, OpenedRelease, check_folder, open_folder, read_note, write_note
    from sfumato.release.release import Release, build_release, repeat_release
    from sfumato.release.verification import Verification, check_charge, verify

__all__ = [
    "Begun",
    "OpenedRelease",
    "PackedAnswers",
    "Release",
    "Verification",
    "append_answers",
    "build_release",
    "check_charge",
    "check_folder",
    "describe_entries",
    "describe_entry",
    "open_folder",
    "pack_measurements",
    "pack_step",
    "read_note",
    "repeat_release",
    "split_answers",
    "unpack_step",
    "verify",
    "write_note",
]

__getattr__, __dir__ = lend_names(__name__)
