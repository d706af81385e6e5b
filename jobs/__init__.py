"""Launchers: they start hires' commands on other machines and never train themselves."""
