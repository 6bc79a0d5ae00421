"""The policy document: from its text to one checked `Policy`.

    text -> nodes with lines -> values (document, sections, options,
    providers) -> validation -> Policy

Here: tables of fields and options, parsers, validation, the compiled form; vendors/ declares the
vendors' settings. A document is refused whole, with every mistake, its line, its path and a remedy.
Not here: the page docs/policy.md, which infra/tools makes from the tables.
"""
