"""The command line: each command is a thin skin over one library call.

`main` starts `app`, which has the commands of `commands`, one file each; `interrupts` ends it.
Beside them lies what they share: `declarations` and `puffin_files` find what is named, `paths`
refuses empty names, `queries` reads query vectors, `lease_options`, `spark_session` and `approval`
are options of commands that write; `output` and `progress` print, `search_answers` what a search
found. `variables` finds misspelled settings.
"""
