"""One page about a run, `report.html`: without a server, a program or anything from outside."""

from stylegan.report.drawings import Captioned as Captioned
from stylegan.report.drawings import Drawings as Drawings
from stylegan.report.drawings import drawings_of as drawings_of
from stylegan.report.drawings import truncation_sweep as truncation_sweep
from stylegan.report.page import check_place as check_place
from stylegan.report.page import write_report as write_report
