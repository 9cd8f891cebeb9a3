"""What an input is: files, launcher prefixes, flight-recorder dumps, call traces, files of the
job."""
