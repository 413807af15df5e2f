"""One room for "a file of weights": what it says, pictures of it, and every format in and out."""
