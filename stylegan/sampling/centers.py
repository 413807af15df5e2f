"""Centers to truncate toward instead of the average of w: Mokady et al. 2022, section 4.

One average suits images of one kind; for varied images, truncation toward it blends unrelated
content. The centers are those of clusters of w, or the means of classes.
"""

from typing import Literal

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.networks import Generator

Centers = int | Literal["class"]
SAMPLES = 10_000  # number of w, from seeds 0, 1, ...
ROUNDS = 100
SEED = 0  # of the initial centers


def find_centers(
    generator: Generator,
    centers: Centers,
    label: Tensor | None = None,
    label_rows: Tensor | None = None,
) -> Tensor:
    """Find centers of w: of K clusters, or for "class" the mean of each class -> (K, w_dim).

    label: (1, label_dim), restricts w to a class or to a mixture of classes.
    label_rows: labels (M, label_dim) of the data, if they are not classes.

    Raises ValueError for "class" without classes. The same call gives the same centers.
    """
    classes = generator.config.label_dim
    all_classes = centers == "class" and label is None
    if all_classes and label_rows is not None:
        raise ValueError("labels are numbers, not classes, so there are no means of classes")
    if all_classes and not classes:
        raise ValueError("the network has no labels, so there are no means of classes")
    w = sampling.sample_w(generator, SAMPLES, label_rows if label is None else label)
    if all_classes:
        # on the CPU, as not every GPU has float64
        of_class = (w[i::classes].cpu().double() for i in range(classes))
        return torch.stack([rows.mean(dim=0) for rows in of_class]).to(w)
    return kmeans(w, 1 if centers == "class" else centers)


def kmeans(w: Tensor, count: int) -> Tensor:
    """K-means centers (count, D) of w (N, D), those of the largest clusters first.

    Initial centers are rows far from one another: k-means++, Arthur and Vassilvitskii 2007.
    """
    if not 1 <= count <= len(w):
        raise ValueError(f"the number of centers must be from 1 to {len(w)}, got {count}")
    draws = torch.Generator().manual_seed(SEED)
    rows = w.cpu().double()
    first = int(torch.randint(len(rows), (1,), generator=draws))
    centers = rows[first : first + 1]
    distances = (rows - centers).square().sum(dim=1)
    while len(centers) < count:
        far = distances if distances.any() else torch.ones_like(distances)
        new = rows[torch.multinomial(far, 1, generator=draws)]
        centers = torch.cat([centers, new])
        distances = torch.minimum(distances, (rows - new).square().sum(dim=1))
    sides = torch.full((len(rows),), -1)
    for _ in range(ROUNDS):
        before = sides
        sides = torch.cdist(rows, centers).argmin(dim=1)
        if torch.equal(before, sides):
            break
        sums = torch.zeros_like(centers).index_add_(0, sides, rows)
        sizes = sides.bincount(minlength=count)[:, None]
        # an empty cluster keeps its center
        centers = torch.where(sizes > 0, sums / sizes.clamp_min(1), centers)
    order = sides.bincount(minlength=count).argsort(descending=True, stable=True)
    return centers[order].to(w)
