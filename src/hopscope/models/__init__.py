"""Transformers, one or a thousand side by side.

`config` says what a model is, and loads no torch; `transformer` is the module, `sites` names what it holds inside,
`export` hands it to other tools.
"""
