"""Agents that drive studies, within limits that their owner has set (`hptune mcp`).

A guard in front of the command line: each tool checks its request against the limits, and runs the
command of hptune that a user would run. The server decides nothing else.

Offers: `limits.read_limits`, `server.Agent`.

May import: `errors`, `text`, `core`, `files`, `user_code`, `samplers`, `pruners`, `storage`,
`config`, `clusters`, `study`.
"""
