"""Plain `nn.Module`s, losses and the registry of model names; nothing here knows of tiles."""

from hires.models import losses as losses
from hires.models.registry import build as build
from hires.models.unet import UNet as UNet
