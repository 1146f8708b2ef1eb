"""Files of any owner: read without waiting, replaced as a whole, errors a user can act on.

Others may write to the folders that hptune reads, a disk may be full, and a server may not answer.
Nothing here knows what a study is made of.

Offers: `access` (a file read in part or replaced as a whole, `whole_path`), `file_errors`,
`filesystem.mount_of`, `ownership` (who may write to a file, and whether it may be loaded as code).

May import: `errors`.
"""
