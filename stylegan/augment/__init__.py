"""Augmentation of what the discriminator sees."""
