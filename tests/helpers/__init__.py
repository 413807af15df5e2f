"""What several tests share; `ROOT` is the folder of the repository. Which helper is for which test:

a network of random weights, or one as if from a file  tiny_generators
a training of a second; one that is `resumed`          tiny_training, kinds in `KINDS`
a command in this process: `told`, or `refused`        commands
a process of its own; two that train and measure       processes; two_processes, measuring
pictures, folders and zips of them; data sets          pictures; shards, tfrecords
a good file of every kind; damaged; limits to read it  stored_files (a kind is a row); damage
numbers of the official program, of other programs     reference, official; foreign_layouts
what a run folder holds and logs; what is told         runs; consoles
figures, films, searches, the explorer's page          charts, films, projecting, browsing
memory of graphs, the meta device, a linear generator  saved_tensors, meta_device, linear_generator

A refusal of a command, or a file that it must not write over, is a row of test_refusals.py.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
