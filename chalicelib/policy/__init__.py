"""The policy document: from its text to one checked `Policy`.

    text -> nodes with lines -> values (document, settings, options,
    providers) -> validation -> Policy

Here: parsers, validation, the compiled form; settings/ declares the settings, a module each section
of spec, and vendors/ those of the vendors. A document is refused whole, with every mistake, its
line, its path and a remedy.
Not here: the page docs/policy.md, which infra/tools makes from the declarations.
"""
