"""Files of weights in every format, the generators that they hold, and the folders of runs."""
