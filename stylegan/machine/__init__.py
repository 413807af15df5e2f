"""What any program needs: messages, plain values, files on disk, processes, threads, versions."""
