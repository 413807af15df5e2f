"""The choice of a configuration, by pictures, a machine and a request."""

from .deciding import Plan, plan
from .request import Request
