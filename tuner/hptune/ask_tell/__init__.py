"""Programs that ask a study for trials and tell their results, where no master need run.

A program that asks is a worker of the study's engine, under a lease. Each call takes the study's
lock for its moment: it feeds the engine what others have written, lets it decide, and writes one
transaction. Who finds the lock taken is answered by the program that has it (`calls`).

Offers: `study.open_study` and `study.AskedStudy`, `spaces` (`Float`, `Int`, … and what a space is
read from). For the command line: `session.Session` (the calls) and `trial`, which load neither what
plans a study (`opening`) nor what shows it (`study`).

May import: `errors`, `text`, `core`, `config`, `clusters`, `master`, `storage`, `study`,
`training`, `user_code`, `worker`.
"""
