"""Images and boxes; never imports torch.

Words: a *box* is a half-open interval per axis, ``((start, stop), …)``, in one array's own grid;
a *tile* is the box of results that one piece of work produces; its *halo* is what must be read around it.
"""
