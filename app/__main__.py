"""`python -m app` is the command `plangate`."""

from app.doors.cli import main

main()
