"""Ground of any program: messages, plain values, files, processes, threads, versions."""
