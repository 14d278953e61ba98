"""What the site is built from: `make docs`. docs/conf.py tells Sphinx of it.

places     which file of the repository is which page, and what is the same page in the other language
links      links between files, as links between pages
lessons    a notebook as a page: its buttons, and its pictures with their words
pages      the files of a tree, as Sphinx is to read them
extension  what Sphinx lacks: search in Chinese, GitHub's anchors, where the switch of languages leads
"""
