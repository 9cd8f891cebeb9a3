"""Who is waited for in a job, by all evidence, and how it is shown; values in, values out."""
