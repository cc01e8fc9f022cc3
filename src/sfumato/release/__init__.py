"""A release: the noisy table with its proof attached.

`release` derives everything from noisy answers, `files` packs the answers, `certificate` and `writeup`
state the guarantee to machines and to people, `folder` is the one way in and out of a folder, `verify`
derives it all again.
"""
