"""The settings of a policy document outside the vendors: a module each section of spec.

Here: structs whose fields declare the settings, with key, kind, bounds, default and words; the
kinds that one section alone has, and the rules within it. Not here: rules across sections
(validation.py and disruption_validation.py), the vendors' settings (vendors/).
"""
