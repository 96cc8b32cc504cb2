"""Where tasks run: a process pool, a Dask cluster; and how progress is shown."""
