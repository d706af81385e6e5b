"""Plain `nn.Module`s and the registry of model names; nothing here knows of tiles."""
