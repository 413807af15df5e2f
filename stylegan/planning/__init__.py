"""What to train: from pictures, a machine and what is asked for, to a configuration."""

from .deciding import Plan, plan
from .request import Request
